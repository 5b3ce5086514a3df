/* The peak of one core: multiply-adds on twelve registers, without memory. Returns floating-point operations. */

#include <immintrin.h>

#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define START(i) __m512 s##i = _mm512_setzero_ps();
#define EIGHT(i) __asm__ volatile("vfmadd231ps %t1, %t1, %t0" : "+v"(s##i) : "v"(one));
#define SIXTEEN(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(s##i) : "v"(one));
#define PAIRS(i) __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(s##i) : "v"(one));
#define LOOP(X) for (long k = 0; k < rounds; k++) { ALL(X) }

/* kind: 0 float32 in eight lanes, 1 in sixteen, 2 bfloat16 */
__attribute__((target("avx512f,avx512bf16"))) double peak(int kind, long rounds) {
  const __m512 one = _mm512_setzero_ps();
  ALL(START)
  if (kind == 0) LOOP(EIGHT)
  else if (kind == 1) LOOP(SIXTEEN)
  else LOOP(PAIRS)
  return (double)rounds * 12 * (kind == 0 ? 16 : kind == 1 ? 32 : 64);
}
