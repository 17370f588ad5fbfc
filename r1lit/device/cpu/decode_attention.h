// Attention of one new token a row, over a prompt that a group shares and over the row's own past.
//
// R rows   P prompts   K key-value heads   n query heads for each   S prompt tokens   T own tokens
// D head size
//
// Keys and values are read where they lie and turned into float32 in registers; scores, weights and sums
// are float32. One thread takes rows that stand next to each other, so that it meets a prompt's
// keys once for all rows of the group and finds them in its cache after that.

#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "vectors.h"

namespace r1lit {

using at::Tensor;

constexpr int64_t TILE = 64;  // tokens whose keys stay in the nearest cache while n heads read them

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)

// GCC takes vectors of sixteen lanes apart, lane by lane, where registers hold eight: twelve times
// as slow as this, which adds up in the same order.

// The sums of neighbouring lanes of the products of a query and one key, four times over.
template <int parts, typename Number>
inline __m256 quarters_of(const float* __restrict query, const Number* __restrict key) {
  __m256 low = _mm256_mul_ps(load_half(query), load_half(key));
  __m256 high = _mm256_mul_ps(load_half(query + 8), load_half(key + 8));
#pragma GCC unroll 8
  for (int part = 1; part < parts; ++part) {
    const float* q = query + part * LANES;
    const Number* k = key + part * LANES;
    low = _mm256_fmadd_ps(load_half(q), load_half(k), low);
    high = _mm256_fmadd_ps(load_half(q + 8), load_half(k + 8), high);
  }
  return _mm256_hadd_ps(low, high);
}

// Of two keys the sums of lanes 0 to 7 and 8 to 15.
inline __m128 halves_of(__m256 a, __m256 b) {
  const __m256 both = _mm256_hadd_ps(a, b);
  return _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
}

// The scores of sixteen keys, of which those from `left` on are read as if they were the last.
template <int parts, bool whole, typename Number>
inline Floats scores_of_sixteen(const float* __restrict query, const Number* __restrict key,
                                int64_t left) {
  constexpr int64_t size = parts * LANES;
  const auto quarters = [&](int64_t i) {
    return quarters_of<parts>(query, key + (whole ? i : std::min(i, left - 1)) * size);
  };
  float scores[LANES];
#pragma GCC unroll 4
  for (int64_t i = 0; i < LANES; i += 4) {
    const __m128 first = halves_of(quarters(i), quarters(i + 1));
    const __m128 second = halves_of(quarters(i + 2), quarters(i + 3));
    _mm_storeu_ps(scores + i, _mm_hadd_ps(first, second));
  }
  return load(scores);
}

// Add `tokens` values, weighted, to D numbers of `out`.
template <int parts, typename Number>
inline void add_weighted_parts(const float* __restrict weights, const Number* __restrict value,
                               int64_t tokens, float* __restrict out) {
  constexpr int64_t size = parts * LANES, halves = 2;
  // 48 numbers at a time: their sums of even and of odd tokens fill twelve of sixteen registers
  constexpr int at_once = 3;
#pragma GCC unroll 4
  for (int first = 0; first < parts; first += at_once) {
    constexpr int most = parts < at_once ? parts : at_once;
    const int count = std::min(most, parts - first) * halves;
    __m256 even[most * halves], odd[most * halves];
#pragma GCC unroll 8
    for (int i = 0; i < most * halves; ++i) even[i] = odd[i] = _mm256_setzero_ps();
    const Number* v = value + first * LANES;
    int64_t t = 0;
    for (; t + 1 < tokens; t += 2) {
      const __m256 a = _mm256_set1_ps(weights[t]), b = _mm256_set1_ps(weights[t + 1]);
#pragma GCC unroll 8
      for (int i = 0; i < most * halves; ++i) {
        if (i >= count) break;
        even[i] = _mm256_fmadd_ps(a, load_half(v + t * size + 8 * i), even[i]);
        odd[i] = _mm256_fmadd_ps(b, load_half(v + (t + 1) * size + 8 * i), odd[i]);
      }
    }
    float* o = out + first * LANES;
#pragma GCC unroll 8
    for (int i = 0; i < most * halves; ++i) {
      if (i >= count) break;
      if (t < tokens) {
        const __m256 a = _mm256_set1_ps(weights[t]);
        even[i] = _mm256_fmadd_ps(a, load_half(v + t * size + 8 * i), even[i]);
      }
      const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(o + 8 * i), _mm256_add_ps(even[i], odd[i]));
      _mm256_storeu_ps(o + 8 * i, sum);
    }
  }
}

#else

// Add neighbouring lanes: of a and b the sums of lanes 2i and 2i + 1, those of a first.
inline Floats add_neighbours(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Sum up the lanes of sixteen vectors at once: their sums are the lanes of what is returned.
template <int count = LANES>
inline Floats sums_of(Floats* sums) {
  if constexpr (count == 1) {
    return sums[0];
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i) sums[i] = add_neighbours(sums[2 * i], sums[2 * i + 1]);
    return sums_of<count / 2>(sums);
  }
}

// The scores of sixteen keys, of which those from `left` on are read as if they were the last.
template <int parts, bool whole, typename Number>
inline Floats scores_of_sixteen(const float* __restrict query, const Number* __restrict key,
                                int64_t left) {
  constexpr int64_t size = parts * LANES;
  Floats sums[LANES];
#pragma GCC unroll 16
  for (int64_t i = 0; i < LANES; ++i) {
    const Number* one = key + (whole ? i : std::min(i, left - 1)) * size;
    sums[i] = load(query) * load(one);
#pragma GCC unroll 8
    for (int part = 1; part < parts; ++part)
      sums[i] += load(query + part * LANES) * load(one + part * LANES);
  }
  return sums_of(sums);
}

// Add `tokens` values, weighted, to D numbers of `out`.
template <int parts, typename Number>
inline void add_weighted_parts(const float* __restrict weights, const Number* __restrict value,
                               int64_t tokens, float* __restrict out) {
  constexpr int64_t size = parts * LANES;
  Floats even[parts] = {}, odd[parts] = {};  // two, so that one need not wait for the other
  int64_t t = 0;
  for (; t + 1 < tokens; t += 2) {
#pragma GCC unroll 8
    for (int part = 0; part < parts; ++part) {
      even[part] += weights[t] * load(value + t * size + part * LANES);
      odd[part] += weights[t + 1] * load(value + (t + 1) * size + part * LANES);
    }
  }
#pragma GCC unroll 8
  for (int part = 0; part < parts; ++part) {
    if (t < tokens) even[part] += weights[t] * load(value + t * size + part * LANES);
    const Floats sum = load(out + part * LANES) + (even[part] + odd[part]);
    std::memcpy(out + part * LANES, &sum, sizeof sum);
  }
}

#endif

// D is a multiple of LANES, `parts` of them; 0 stands for any other D, which is slower.
template <int parts, typename Number>
void scores_of(const float* __restrict query, const Number* __restrict key, int64_t tokens,
               int64_t D, float* __restrict scores) {
  if constexpr (parts > 0) {
    int64_t t = 0;
    for (; t + LANES <= tokens; t += LANES) {
      const Floats all = scores_of_sixteen<parts, true>(query, key + t * D, LANES);
      std::memcpy(scores + t, &all, sizeof all);
    }
    if (t < tokens) {
      const Floats all = scores_of_sixteen<parts, false>(query, key + t * D, tokens - t);
      std::memcpy(scores + t, &all, (tokens - t) * sizeof(float));
    }
  } else {
    for (int64_t t = 0; t < tokens; ++t) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t d = 0; d < D; ++d) sum += query[d] * to_float(key[t * D + d]);
      scores[t] = sum;
    }
  }
}

template <int parts, typename Number>
void add_weighted(const float* __restrict weights, const Number* __restrict value, int64_t tokens,
                  int64_t D, float* __restrict out) {
  if constexpr (parts > 0) {
    add_weighted_parts<parts>(weights, value, tokens, out);
  } else {
    for (int64_t t = 0; t < tokens; ++t) {
      const float weight = weights[t];
#pragma omp simd
      for (int64_t d = 0; d < D; ++d) out[d] += weight * to_float(value[t * D + d]);
    }
  }
}

struct Shape {
  int64_t rows, key_heads, per_key, size, prompt_tokens, own_tokens, own_room;
};

template <int parts, typename Number>
void attend(const Shape& s, const float* query, const float* key, const float* value,
            const Number* prompt_key, const Number* prompt_value, const int64_t* prompt_length,
            const int64_t* prompt_of, Number* own_key, Number* own_value, float* out) {
  const int64_t D = parts ? parts * LANES : s.size, n = s.per_key, K = s.key_heads;
  const int64_t longest = s.prompt_tokens + s.own_tokens;
  at::parallel_for(0, s.rows * K, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> room(n * longest);
    for (int64_t item = begin; item < end; ++item) {
      // neighbours share the prompt's head
      const int64_t row = item % s.rows, head = item / s.rows;
      const int64_t prompt = prompt_of[row], S = prompt_length[prompt], T = s.own_tokens;
      const float* q = query + (row * K + head) * n * D;
      float* o = out + (row * K + head) * n * D;
      Number* own_k = own_key + (row * K + head) * s.own_room * D;
      Number* own_v = own_value + (row * K + head) * s.own_room * D;
      for (int64_t d = 0; d < D; ++d) {
        own_k[(T - 1) * D + d] = static_cast<Number>(key[(row * K + head) * D + d]);
        own_v[(T - 1) * D + d] = static_cast<Number>(value[(row * K + head) * D + d]);
      }
      const int64_t at = (prompt * K + head) * s.prompt_tokens * D;
      const Number* keys[2] = {prompt_key + at, own_k};
      const Number* values[2] = {prompt_value + at, own_v};
      const int64_t counts[2] = {S, T};

      for (int part = 0, before = 0; part < 2; before = S, ++part)
        for (int64_t t = 0; t < counts[part]; t += TILE) {
          const int64_t tokens = std::min(TILE, counts[part] - t);
          for (int64_t j = 0; j < n; ++j)
            scores_of<parts>(q + j * D, keys[part] + t * D, tokens, D,
                            room.data() + j * longest + before + t);
        }
      for (int64_t j = 0; j < n; ++j) {
        float* weights = room.data() + j * longest;
        float highest = -std::numeric_limits<float>::infinity(), total = 0;
#pragma omp simd reduction(max : highest)
        for (int64_t t = 0; t < S + T; ++t) highest = weights[t] > highest ? weights[t] : highest;
#pragma omp simd reduction(+ : total)
        for (int64_t t = 0; t < S + T; ++t) {
          weights[t] = exp_negative(weights[t] - highest);
          total += weights[t];
        }
        const float scale = 1 / total;
#pragma omp simd
        for (int64_t t = 0; t < S + T; ++t) weights[t] *= scale;
        for (int64_t d = 0; d < D; ++d) o[j * D + d] = 0;
      }
      for (int part = 0, before = 0; part < 2; before = S, ++part)
        for (int64_t t = 0; t < counts[part]; t += TILE) {
          const int64_t tokens = std::min(TILE, counts[part] - t);
          for (int64_t j = 0; j < n; ++j)
            add_weighted<parts>(room.data() + j * longest + before + t, values[part] + t * D,
                               tokens, D, o + j * D);
        }
    }
  });
}

template <typename Number, typename... Arguments>
void attend_any(const Shape& shape, Arguments... arguments) {
  switch (shape.size % LANES ? 0 : shape.size / LANES) {
    case 2: return attend<2, Number>(shape, arguments...);
    case 3: return attend<3, Number>(shape, arguments...);
    case 4: return attend<4, Number>(shape, arguments...);
    case 5: return attend<5, Number>(shape, arguments...);
    case 6: return attend<6, Number>(shape, arguments...);
    case 8: return attend<8, Number>(shape, arguments...);
    default: return attend<0, Number>(shape, arguments...);
  }
}

inline Tensor attend_cached(const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& prompt_key, const Tensor& prompt_value,
                     const Tensor& prompt_length, const Tensor& prompt_of, const Tensor& own_key,
                     const Tensor& own_value, double scaling) {
  const auto plain = [](const Tensor& x) { return x.to(at::kFloat).contiguous(); };
  const Tensor q = plain(query).mul(scaling), k = plain(key), v = plain(value);
  Shape shape;
  shape.rows = own_key.size(0);
  shape.key_heads = own_key.size(1);
  shape.per_key = query.size(1) / shape.key_heads;
  shape.size = own_key.size(3);
  shape.prompt_tokens = prompt_key.size(2);
  shape.own_tokens = own_key.size(2);
  shape.own_room = own_key.stride(1) / shape.size;
  TORCH_CHECK(own_key.stride(3) == 1 && own_key.stride(2) == shape.size &&
                  own_key.strides() == own_value.strides() && prompt_key.is_contiguous() &&
                  prompt_value.is_contiguous(),
              "attend_cached: the caches do not lie as expected");
  const Tensor out = at::empty(q.sizes(), q.options());
  const auto run = [&](auto number) {
    using Number = decltype(number);
    attend_any<Number>(shape, q.const_data_ptr<float>(), k.const_data_ptr<float>(),
                       v.const_data_ptr<float>(), prompt_key.const_data_ptr<Number>(),
                       prompt_value.const_data_ptr<Number>(),
                       prompt_length.const_data_ptr<int64_t>(),
                       prompt_of.const_data_ptr<int64_t>(), own_key.data_ptr<Number>(),
                       own_value.data_ptr<Number>(), out.data_ptr<float>());
  };
  if (own_key.scalar_type() == at::kBFloat16)
    run(BFloat16());
  else
    run(float());
  return out.to(value.scalar_type());
}

}  // namespace r1lit
