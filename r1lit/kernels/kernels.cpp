// The operations that r1lit adds to PyTorch on a CPU.

#include <torch/library.h>

#include "causal_softmax.h"
#include "decode_attention.h"

TORCH_LIBRARY_FRAGMENT(r1lit, library) {
  library.def(
      "attend_cached(Tensor query, Tensor key, Tensor value, Tensor prompt_key,"
      " Tensor prompt_value, Tensor prompt_length, Tensor prompt_of, Tensor(a!) own_key,"
      " Tensor(b!) own_value, float scaling) -> Tensor");
  library.def("causal_softmax(Tensor scores, float scaling) -> Tensor");
}

TORCH_LIBRARY_IMPL(r1lit, CPU, library) {
  library.impl("attend_cached", r1lit::attend_cached);
  library.impl("causal_softmax", r1lit::causal_softmax);
}
