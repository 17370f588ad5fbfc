"""Which families of facts and skills each stage of R1 loses, over three seeds."""
