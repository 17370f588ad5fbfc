// The weights of causal attention, from scores in float32 to weights in bfloat16 in one pass.
//
// B rows times key-value heads   M = n * L queries, a head's before the next one's   L tokens

#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "vectors.h"

namespace r1lit {

// Round to the nearest, ties to even; not for NaN, of which it may make infinity.
inline uint16_t rounded(float number) {
  union {
    float number;
    uint32_t bits;
  } both = {number};
  return static_cast<uint16_t>((both.bits + 0x7fff + ((both.bits >> 16) & 1)) >> 16);
}

// softmax(scaling * scores) over the keys up to the query's own token, and 0 after it.
inline at::Tensor causal_softmax(const at::Tensor& scores_BML, double scaling) {
  TORCH_CHECK(scores_BML.is_contiguous() && scores_BML.scalar_type() == at::kFloat,
              "causal_softmax: scores are contiguous and float32");
  const int64_t L = scores_BML.size(2), num_queries = scores_BML.size(0) * scores_BML.size(1);
  const at::Tensor weights_BML =
      at::empty(scores_BML.sizes(), scores_BML.options().dtype(at::kBFloat16));
  const float* scores = scores_BML.const_data_ptr<float>();
  auto* weights = reinterpret_cast<uint16_t*>(weights_BML.data_ptr<BFloat16>());
  const float scale = static_cast<float>(scaling);
  at::parallel_for(0, num_queries, 64, [&](int64_t begin, int64_t end) {
    std::vector<float> room(L);
    for (int64_t query = begin; query < end; ++query) {
      const float* __restrict own = scores + query * L;
      float* __restrict power = room.data();
      uint16_t* __restrict out = weights + query * L;
      const int64_t seen = query % L + 1;
      float highest = -std::numeric_limits<float>::infinity(), total = 0;
#pragma omp simd reduction(max : highest)
      for (int64_t t = 0; t < seen; ++t) highest = own[t] > highest ? own[t] : highest;
#pragma omp simd reduction(+ : total)
      for (int64_t t = 0; t < seen; ++t) {
        power[t] = exp_negative((own[t] - highest) * scale);
        total += power[t];
      }
      const float share = 1 / total;
#pragma omp simd
      for (int64_t t = 0; t < seen; ++t) out[t] = rounded(power[t] * share);
      std::fill(out + seen, out + L, 0);
    }
  });
  return weights_BML;
}

}  // namespace r1lit
