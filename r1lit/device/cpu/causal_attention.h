// Causal attention of whole rows, forward and backward, in tiles that stay in a core's cache.
//
// B rows   H query heads   K key-value heads   L tokens   D head size
// U = B * H, one head of one row: what a thread takes   W = L rounded up to STEPs, zeros behind L
//
// A tile is keys x queries, so that what a query has (its highest score, the sum of its powers) lies
// along the lanes of vectors. Products are PyTorch's (oneDNN's brgemm): bfloat16 in, float32 out;
// their second operand lies in pairs, two of its rows side by side: [rows / 2, columns, 2].

#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "vectors.h"

#ifdef CPUBLAS_BRGEMM_BF16BF16F32  // a PyTorch that has these products

namespace r1lit {

using at::Tensor;
using at::native::cpublas::brgemm;

constexpr int64_t STEP = 16;
constexpr int64_t QUERIES = 64, KEYS = 256;  // of a tile in the forward pass
constexpr int64_t SIDE = 128;                // of a tile in the backward pass, at most
constexpr float NEVER = -std::numeric_limits<float>::infinity();

inline void check(const Tensor& tensor, const char* name) {
  const auto type = tensor.scalar_type();
  TORCH_CHECK(tensor.dim() == 4 && tensor.stride(3) == 1 && tensor.size(3) % 2 == 0 &&
                  (type == at::kFloat || type == at::kBFloat16),
              "causal_attention: ", name, " is [B, heads, L, an even D], float32 or bfloat16");
}

struct Sizes {
  int64_t B, H, K, L, D, W, U;

  Sizes(const Tensor& query, const Tensor& key, const Tensor& value, double scaling) {
    check(query, "query"), check(key, "key"), check(value, "value");
    B = query.size(0), H = query.size(1), K = key.size(1), L = query.size(2), D = query.size(3);
    W = (L + STEP - 1) / STEP * STEP, U = B * H;
    TORCH_CHECK(L > 0 && D > 0 && K > 0 && H % K == 0 && scaling > 0 &&
                    key.sizes() == at::IntArrayRef({B, K, L, D}) && value.sizes() == key.sizes(),
                "causal_attention: key and value are [B, K, L, D] as query is [B, H, L, D], H a"
                " multiple of K, and scaling is above 0");
  }
};

// One head of one row of a [B, heads, L, D] tensor as [W, D].
inline void read(const Tensor& tensor, int64_t row, int64_t head, const Sizes& sizes,
                 std::vector<Bits>& out) {
  const int64_t start = row * tensor.stride(0) + head * tensor.stride(1);
  for (int64_t t = 0; t < sizes.L; ++t) {
    const int64_t place = start + t * tensor.stride(2);
    Bits* __restrict own = out.data() + t * sizes.D;
    if (tensor.scalar_type() == at::kFloat) {
      const float* given = tensor.const_data_ptr<float>() + place;
#pragma omp simd
      for (int64_t d = 0; d < sizes.D; ++d) own[d] = rounded(given[d]);
    } else {
      std::memcpy(own, tensor.const_data_ptr<BFloat16>() + place, sizes.D * sizeof(Bits));
    }
  }
  std::fill(out.begin() + sizes.L * sizes.D, out.end(), 0);
}

// [W, D] to [W / 2, D, 2].
inline void pair(const std::vector<Bits>& plain, const Sizes& sizes, std::vector<Bits>& out) {
  auto* __restrict words = reinterpret_cast<uint32_t*>(out.data());
  for (int64_t t = 0; t < sizes.W; t += 2) {
    const Bits *__restrict even = plain.data() + t * sizes.D, *__restrict odd = even + sizes.D;
    uint32_t* __restrict own = words + t / 2 * sizes.D;
#pragma omp simd
    for (int64_t d = 0; d < sizes.D; ++d) own[d] = even[d] | static_cast<uint32_t>(odd[d]) << 16;
  }
}

// A matrix of 32-bit words to the transposes of its tiles of `side` rows, one after another; the
// last one is as wide as the others, that products have few shapes. So [W, D / 2, 2] becomes
// [tiles, D / 2, side, 2], and with half the side [W / 2, D, 2] becomes [tiles, D, side].
inline void turn(const void* matrix, int64_t rows, int64_t columns, int64_t side, void* out) {
  const auto* __restrict from = static_cast<const uint32_t*>(matrix);
  auto* __restrict to = static_cast<uint32_t*>(out);
  for (int64_t tile = 0; tile < rows; tile += side)
    for (int64_t r = tile; r < std::min(tile + side, rows); r += LANES)
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t i = r; i < std::min({r + LANES, tile + side, rows}); ++i)
          to[tile * columns + c * side + i - tile] = from[i * columns + c];
}

inline int64_t whole(int64_t tokens, int64_t side) { return (tokens + side - 1) / side * side; }

// What a thread needs to attend with the queries of one head after another.
class Forward {
 public:
  Forward(const Sizes& sizes, float scale)
      : sizes(sizes), scale(scale), plain(sizes.W * sizes.D), pairs(plain),
        query(whole(sizes.W, QUERIES) * sizes.D), key(plain), value(whole(sizes.W, KEYS) * sizes.D),
        scores(KEYS * QUERIES), sums(sizes.D * QUERIES), powers(KEYS / 2 * QUERIES) {}

  void take_query(const Tensor& tensor, int64_t row, int64_t head) {
    read(tensor, row, head, sizes, plain);
    turn(plain.data(), sizes.W, sizes.D / 2, QUERIES, query.data());
  }

  void take_key_value(const Tensor& keys, const Tensor& values, int64_t row, int64_t head) {
    read(keys, row, head, sizes, key);
    read(values, row, head, sizes, plain);
    pair(plain, sizes, pairs);
    turn(pairs.data(), sizes.W / 2, sizes.D, KEYS / 2, value.data());
  }

  // Attend with up to QUERIES queries from `first` on; returns how many. `sums` [D, QUERIES] over
  // `total` are what they see, and `highest * scale + log(total)` the log of their summed powers.
  int64_t attend(int64_t first) {
    const int64_t D = sizes.D, num_queries = std::min(QUERIES, sizes.W - first);
    const int64_t last = first + num_queries;
    std::fill_n(highest, QUERIES, NEVER);
    std::fill_n(total, QUERIES, 0.0f);
    for (int64_t j = 0; j < last; j += KEYS) {
      const int64_t num_keys = std::min(KEYS, last - j);
      brgemm(num_keys, num_queries, D, D, QUERIES, QUERIES, false, numbers(key.data() + j * D),
             numbers(query.data() + first * D), scores.data());
      for (int64_t t = std::max<int64_t>(0, first - j); t < num_keys; ++t)
        std::fill_n(scores.data() + t * QUERIES, j + t - first, NEVER);
      raise_highest(num_keys, num_queries, j > 0);
      take_powers(num_keys, num_queries);
      brgemm(D, num_queries, num_keys, KEYS, QUERIES, QUERIES, j > 0,
             numbers(value.data() + j * D), numbers(powers.data()), sums.data());
    }
    return std::min(num_queries, sizes.L - first);
  }

  const Sizes sizes;
  const float scale;
  std::vector<Bits> plain, pairs, query, key, value;
  std::vector<float> scores, sums;
  std::vector<uint32_t> powers;
  float highest[QUERIES], total[QUERIES];

 private:
  // Raise the highest scores to those of the tile, and shrink what has been summed to match.
  void raise_highest(int64_t num_keys, int64_t num_queries, bool has_sums) {
    float shrink[QUERIES];
    std::copy_n(highest, QUERIES, shrink);
    for (int64_t t = 0; t < num_keys; ++t) {
      const float* __restrict score = scores.data() + t * QUERIES;
#pragma omp simd
      for (int64_t i = 0; i < num_queries; ++i)
        highest[i] = score[i] > highest[i] ? score[i] : highest[i];
    }
    if (!has_sums) return;
#pragma omp simd
    for (int64_t i = 0; i < num_queries; ++i) {
      shrink[i] = exp_negative((shrink[i] - highest[i]) * scale);
      total[i] *= shrink[i];
    }
    for (int64_t d = 0; d < sizes.D; ++d) {
      float* __restrict sum = sums.data() + d * QUERIES;
#pragma omp simd
      for (int64_t i = 0; i < num_queries; ++i) sum[i] *= shrink[i];
    }
  }

  void take_powers(int64_t num_keys, int64_t num_queries) {
    for (int64_t t = 0; t < num_keys; t += 2) {
      const float *__restrict even = scores.data() + t * QUERIES, *__restrict odd = even + QUERIES;
      uint32_t* __restrict power = powers.data() + t / 2 * QUERIES;
#pragma omp simd
      for (int64_t i = 0; i < num_queries; ++i) {
        const float a = even[i] == NEVER ? 0 : exp_negative((even[i] - highest[i]) * scale);
        const float b = odd[i] == NEVER ? 0 : exp_negative((odd[i] - highest[i]) * scale);
        total[i] += a + b;
        power[i] = rounded(a) | rounded(b) << 16;
      }
    }
  }
};

// Returns [B, L, H, D] in bfloat16, and the logarithm of each query's summed powers, [U, L].
inline std::tuple<Tensor, Tensor> causal_attention(const Tensor& query, const Tensor& key,
                                                   const Tensor& value, double scaling) {
  const Sizes sizes(query, key, value, scaling);
  const int64_t B = sizes.B, H = sizes.H, L = sizes.L, D = sizes.D, U = sizes.U, group = H / sizes.K;
  const Tensor out = at::empty({B, L, H, D}, query.options().dtype(at::kBFloat16));
  const Tensor norms = at::empty({U, L}, query.options().dtype(at::kFloat));
  auto* outs = reinterpret_cast<Bits*>(out.data_ptr<BFloat16>());
  float* norm = norms.data_ptr<float>();
  at::parallel_for(0, U, 1, [&](int64_t begin, int64_t end) {
    Forward head(sizes, static_cast<float>(scaling));
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / H, h = u % H;
      head.take_query(query, row, h);
      if (u == begin || h % group == 0) head.take_key_value(key, value, row, h / group);
      for (int64_t first = 0; first < L; first += QUERIES) {
        const int64_t num_queries = head.attend(first);
        for (int64_t i = 0; i < num_queries; ++i) {
          const float share = 1 / head.total[i];
          Bits* own = outs + ((row * L + first + i) * H + h) * D;
          for (int64_t d = 0; d < D; ++d) own[d] = rounded(head.sums[d * QUERIES + i] * share);
          norm[u * L + first + i] = head.highest[i] * head.scale + std::log(head.total[i]);
        }
      }
    }
    at::native::cpublas::brgemm_release();
  });
  return {out, norms};
}

// What a thread needs for the gradients of one head after another.
class Backward {
 public:
  Backward(const Sizes& sizes, float scale)
      : sizes(sizes), scale(scale), side(even_side(sizes.W)), plain(sizes.W * sizes.D), key(plain),
        value(plain), query_pairs(plain), grad_pairs(plain),
        query_turned(whole(sizes.W, side) * sizes.D), grad_turned(query_turned),
        key_turned(query_turned), norm(sizes.W), mean(sizes.W), query_sums(query_turned.size()),
        query_grad(query_sums), key_grad(sizes.W * sizes.D), value_grad(key_grad),
        scores(side * side), slopes(scores), weights(side * side), steps(weights),
        step_pairs(side / 2 * side) {}

  void take_key_value(const Tensor& keys, const Tensor& values, int64_t row, int64_t head) {
    read(keys, row, head, sizes, key);
    pair(key, sizes, plain);
    turn(plain.data(), sizes.W / 2, sizes.D, side / 2, key_turned.data());
    read(values, row, head, sizes, value);
  }

  void take_query(const Tensor& query, const Tensor& grad, const Tensor& out, const float* norms,
                  int64_t row, int64_t head) {
    const int64_t L = sizes.L, D = sizes.D;
    read(query, row, head, sizes, plain);
    pair(plain, sizes, query_pairs);
    turn(plain.data(), sizes.W, D / 2, side, query_turned.data());
    read(grad, row, head, sizes, plain);
    pair(plain, sizes, grad_pairs);
    turn(plain.data(), sizes.W, D / 2, side, grad_turned.data());
    std::copy_n(norms, L, norm.data());
    const BFloat16* seen =
        out.const_data_ptr<BFloat16>() + row * out.stride(0) + head * out.stride(1);
    for (int64_t t = 0; t < L; ++t) {
      const BFloat16* slope = numbers(plain.data()) + t * D;
      mean[t] = 0;
      for (int64_t d = 0; d < D; ++d)
        mean[t] += to_float(slope[d]) * to_float(seen[t * out.stride(2) + d]);
    }
  }

  // Fill in query_grad, key_grad and value_grad, each [W, D].
  void differentiate() {
    const int64_t D = sizes.D, W = sizes.W;
    for (int64_t j = 0; j < W; j += side) {
      const int64_t num_keys = std::min(side, W - j);
      for (int64_t i = j; i < W; i += side) {
        const int64_t num_queries = std::min(side, W - i);
        brgemm(num_keys, num_queries, D, D, side, side, false, numbers(key.data() + j * D),
               numbers(query_turned.data() + i * D), scores.data());
        brgemm(num_keys, num_queries, D, D, side, side, false, numbers(value.data() + j * D),
               numbers(grad_turned.data() + i * D), slopes.data());
        differentiate_softmax(i, num_keys, num_queries, i == j);
        brgemm(num_keys, D, num_queries, side, D, D, i > j, numbers(weights.data()),
               numbers(grad_pairs.data() + i * D), value_grad.data() + j * D);
        brgemm(num_keys, D, num_queries, side, D, D, i > j, numbers(steps.data()),
               numbers(query_pairs.data() + i * D), key_grad.data() + j * D);
        brgemm(D, num_queries, num_keys, side, side, side, j > 0, numbers(key_turned.data() + j * D),
               numbers(step_pairs.data()), query_sums.data() + i * D);
      }
    }
    for (int64_t i = 0; i < W; i += side)
      turn(query_sums.data() + i * D, D, side, D, query_grad.data() + i * D);
  }

  const Sizes sizes;
  const float scale;
  const int64_t side;
  std::vector<Bits> plain, key, value, query_pairs, grad_pairs, query_turned, grad_turned, key_turned;
  std::vector<float> norm, mean, query_sums, query_grad, key_grad, value_grad, scores, slopes;
  std::vector<Bits> weights, steps;
  std::vector<uint32_t> step_pairs;

 private:
  // The side of the fewest tiles that are about as large as each other.
  static int64_t even_side(int64_t W) {
    const int64_t tiles = whole(W, SIDE) / SIDE;
    return whole(whole(W, tiles) / tiles, STEP);
  }

  // Weights of a tile from its scores, and their gradients from the slopes, both rounded.
  void differentiate_softmax(int64_t first, int64_t num_keys, int64_t num_queries, bool is_diagonal) {
    const float *__restrict log_sum = norm.data() + first, *__restrict less = mean.data() + first;
    for (int64_t t = 0; t < num_keys; t += 2) {
      const float *__restrict score_a = scores.data() + t * side, *__restrict score_b = score_a + side;
      const float *__restrict slope_a = slopes.data() + t * side, *__restrict slope_b = slope_a + side;
      Bits *__restrict weight_a = weights.data() + t * side, *__restrict weight_b = weight_a + side;
      Bits *__restrict step_a = steps.data() + t * side, *__restrict step_b = step_a + side;
      uint32_t* __restrict both = step_pairs.data() + t / 2 * side;
      const int64_t seen_from = is_diagonal ? t : -1;
#pragma omp simd
      for (int64_t i = 0; i < num_queries; ++i) {
        const float a = i >= seen_from ? exp_negative(score_a[i] * scale - log_sum[i]) : 0.0f;
        const float b = i > seen_from ? exp_negative(score_b[i] * scale - log_sum[i]) : 0.0f;
        const uint32_t grad_a = rounded(a * (slope_a[i] - less[i]) * scale);
        const uint32_t grad_b = rounded(b * (slope_b[i] - less[i]) * scale);
        weight_a[i] = rounded(a), weight_b[i] = rounded(b);
        step_a[i] = grad_a, step_b[i] = grad_b;
        both[i] = grad_a | grad_b << 16;
      }
    }
  }
};

// Returns the gradients of query [B, L, H, D] and of key and value [B, L, K, D], float32.
inline std::tuple<Tensor, Tensor, Tensor> causal_attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& norms, double scaling) {
  const Sizes sizes(query, key, value, scaling);
  check(grad, "grad"), check(out, "out");
  TORCH_CHECK(grad.sizes() == query.sizes() && out.sizes() == query.sizes() &&
                  out.scalar_type() == at::kBFloat16 && norms.is_contiguous() &&
                  norms.numel() == sizes.U * sizes.L,
              "causal_attention: grad, out and norms are those of the forward pass");
  const int64_t B = sizes.B, H = sizes.H, K = sizes.K, L = sizes.L, D = sizes.D, U = sizes.U;
  const int64_t group = H / K;
  const auto options = query.options().dtype(at::kFloat);
  Tensor grads[3];
  for (Tensor& one : grads) one = at::empty({B, L, H, D}, options);
  at::parallel_for(0, U, 1, [&](int64_t begin, int64_t end) {
    Backward head(sizes, static_cast<float>(scaling));
    const std::vector<float>* made[] = {&head.query_grad, &head.key_grad, &head.value_grad};
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / H, h = u % H;
      if (u == begin || h % group == 0) head.take_key_value(key, value, row, h / group);
      head.take_query(query, grad, out, norms.const_data_ptr<float>() + u * L, row, h);
      head.differentiate();
      for (int64_t which = 0; which < 3; ++which)
        for (int64_t t = 0; t < L; ++t)
          std::copy_n(made[which]->data() + t * D, D,
                      grads[which].data_ptr<float>() + ((row * L + t) * H + h) * D);
    }
    at::native::cpublas::brgemm_release();
  });
  if (group > 1)
    for (int64_t which = 1; which < 3; ++which)
      grads[which] = grads[which].view({B, L, K, group, D}).sum(3);
  return {grads[0], grads[1], grads[2]};
}

}  // namespace r1lit

#endif
