// The operations that r1lit adds to PyTorch on a CPU.

#include <torch/library.h>

#include "causal_attention.h"
#include "decode_attention.h"
#include "packed_linear.h"

TORCH_LIBRARY_FRAGMENT(r1lit, library) {
  library.def(
      "attend_cached(Tensor query, Tensor key, Tensor value, Tensor prompt_key,"
      " Tensor prompt_value, Tensor prompt_length, Tensor prompt_of, Tensor(a!) own_key,"
      " Tensor(b!) own_value, float scaling) -> Tensor");
#ifdef CPUBLAS_BRGEMM_BF16BF16F32
  library.def(
      "causal_attention(Tensor query, Tensor key, Tensor value, float scaling)"
      " -> (Tensor, Tensor)");
  library.def(
      "causal_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out,"
      " Tensor norms, float scaling) -> (Tensor, Tensor, Tensor)");
  library.def(
      "packed_linear(Tensor x, Tensor weight, int out_features, Tensor? bias) -> Tensor");
#endif
}

TORCH_LIBRARY_IMPL(r1lit, CPU, library) {
  library.impl("attend_cached", r1lit::attend_cached);
#ifdef CPUBLAS_BRGEMM_BF16BF16F32
  library.impl("causal_attention", r1lit::causal_attention);
  library.impl("causal_attention_backward", r1lit::causal_attention_backward);
  library.impl("packed_linear", r1lit::packed_linear);
#endif
}
