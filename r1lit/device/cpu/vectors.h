// Numbers as kernels read and round them, and an exponential that loops can be vectorised over.

#pragma once

#include <c10/util/BFloat16.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace r1lit {

using c10::BFloat16;
using Bits = uint16_t;  // of a bfloat16

// In as many registers as the machine needs for them.
constexpr int64_t LANES = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

inline Floats load(const float* x) {
  Floats lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}

inline Floats load(const BFloat16* x) {  // the upper half of a float32's bits
  Halves halves;
  std::memcpy(&halves, x, sizeof halves);
#ifdef __AVX512F__  // GCC makes three instructions of what is one
  return (Floats)((Words)_mm512_cvtepu16_epi32((__m256i)halves) << 16);
#else
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
#endif
}

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
// Half of a vector, what one register of AVX2 holds.
inline __m256 load_half(const float* x) { return _mm256_loadu_ps(x); }

inline __m256 load_half(const BFloat16* x) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
#endif

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) { return static_cast<float>(x); }

inline const BFloat16* numbers(const void* bits) { return static_cast<const BFloat16*>(bits); }

// The nearest bfloat16, ties to even; a NaN may become any number.
inline uint32_t rounded(float number) {
  union {
    float number;
    uint32_t bits;
  } both = {number};
  return (both.bits + 0x7fff + ((both.bits >> 16) & 1)) >> 16;
}

// e^x for x <= 0 within 2e-7 of it: 2^round(x log2 e) times a Taylor polynomial of what is left.
// A loop over it is vectorised, which one over std::exp is not everywhere.
inline float exp_negative(float x) {
  x = x < -87.0f ? -87.0f : x;
  const float whole = std::nearbyint(x * 1.44269504f);
  const float rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float sum = 1.0f / 5040;
  sum = sum * rest + 1.0f / 720;
  sum = sum * rest + 1.0f / 120;
  sum = sum * rest + 1.0f / 24;
  sum = sum * rest + 1.0f / 6;
  sum = sum * rest + 0.5f;
  sum = sum * rest + 1.0f;
  sum = sum * rest + 1.0f;
  union {
    int32_t bits;
    float number;
  } power = {(static_cast<int32_t>(whole) + 127) << 23};
  return sum * power.number;
}

}  // namespace r1lit
