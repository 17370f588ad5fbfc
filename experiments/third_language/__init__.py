"""Does the language reward hold three languages apart?"""
