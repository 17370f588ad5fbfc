// A linear layer in bfloat16 whose weight lies as PyTorch's products (oneDNN's brgemm) read it.
//
// M rows   K features in   N features out, BLOCK of them in a block

#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "vectors.h"

#ifdef CPUBLAS_BRGEMM_BF16BF16F32  // a PyTorch that has these products

namespace r1lit {

using at::Tensor;

constexpr int64_t ROWS = 64, BLOCK = 64;
constexpr int64_t WORTH_A_THREAD = 400'000;  // products

// Returns x [..., K] times the weight [blocks, K / 2, BLOCK, 2], plus the bias [N].
inline Tensor packed_linear(const Tensor& x, const Tensor& weight, int64_t N,
                            const std::optional<Tensor>& bias) {
  const int64_t K = x.size(-1), M = K ? x.numel() / K : 0, blocks = weight.size(0);
  TORCH_CHECK(x.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kBFloat16 &&
                  weight.dim() == 4 && weight.size(1) * 2 == K && weight.size(2) == BLOCK &&
                  weight.is_contiguous() && N <= blocks * BLOCK &&
                  (!bias || (bias->is_contiguous() && bias->numel() == N &&
                             bias->scalar_type() == at::kBFloat16)),
              "packed_linear: x is [..., K], the weight [N / ", BLOCK, ", K / 2, ", BLOCK,
              ", 2] and the bias [N], all bfloat16");
  const Tensor input = x.contiguous();
  auto sizes = x.sizes().vec();
  sizes.back() = N;
  const Tensor out = at::empty(sizes, x.options());
  const BFloat16 *in = input.const_data_ptr<BFloat16>(), *w = weight.const_data_ptr<BFloat16>();
  const BFloat16* added = bias ? bias->const_data_ptr<BFloat16>() : nullptr;
  auto* outs = reinterpret_cast<Bits*>(out.data_ptr<BFloat16>());
  const int64_t row_blocks = (M + ROWS - 1) / ROWS;
  const int64_t work = std::max<int64_t>(1, std::min(M, ROWS) * K * BLOCK);
  const int64_t grain = std::max<int64_t>(1, WORTH_A_THREAD / work);
  at::parallel_for(0, row_blocks * blocks, grain, [&](int64_t begin, int64_t end) {
    float sums[ROWS * BLOCK];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task % blocks, column = block * BLOCK, row = task / blocks * ROWS;
      const int64_t num_rows = std::min(ROWS, M - row), num_columns = std::min(BLOCK, N - column);
      at::native::cpublas::brgemm(num_rows, BLOCK, K, K, BLOCK, BLOCK, false, in + row * K,
                                  w + block * K * BLOCK, sums);
      for (int64_t r = 0; r < num_rows; ++r) {
        const float* __restrict sum = sums + r * BLOCK;
        Bits* __restrict own = outs + (row + r) * N + column;
        if (added) {
          for (int64_t c = 0; c < num_columns; ++c)
            own[c] = rounded(sum[c] + to_float(added[column + c]));
        } else {
#pragma omp simd
          for (int64_t c = 0; c < num_columns; ++c) own[c] = rounded(sum[c]);
        }
      }
    }
    at::native::cpublas::brgemm_release();
  });
  return out;
}

}  // namespace r1lit

#endif
