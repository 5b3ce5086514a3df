/* Softmax cross-entropy of a linear head with its gradients, without the logits (paper, section 5: 50,257 classes).

   A chunk of tokens at a time: exponentials of all classes, their sums and dh; then, the sums being known, dw.
     e [v][c] = exp(w h' - shift),  sum = 1 e,  dh = e' w / sum,  dw += e (h / sum).
   The shift only has to keep the sums finite: it is the largest logit of the first classes, and if that was far from
   the largest of all, the chunk is done again with the exact one.

   In bfloat16 h, w, e and h / sum are rounded, and nothing else: products are summed in float32. */

#include "head.h"

#define SAFE 1e30f /* a larger sum of exponentials is not trusted; nor are NaN and -inf, which an overflow may leave */

/* Words of h, one column per token; columns beyond the last token are zero. */
static void set_columns(const Head *head) {
  const long depth = head->d / head->form->pack, width = head->form->tokens;
  uint32_t *to = head->columns;
  memset(to, 0, (size_t)(depth * width) * sizeof *to);
  for (int t = 0; t < head->tokens; t++)
    for (long k = 0; k < depth; k++) memcpy(to + k * width + t, (const char *)head->h + 4 * (t * depth + k), 4);
}

static int set_dh(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  const long d = head->d, size = head->form->tokens * d;
  (void)thread;
  for (long t = first; t < last; t++)
    for (long c = 0; c < d; c += W) {
      vec total = {0};
      for (long part = 0; part < PARTS; part++)
        if (part_start(head, part) < part_start(head, part + 1)) total += load(head->parts + part * size + t * d + c);
      store(head->dh + t * d + c, total * head->factor[t]);
    }
  return 0;
}

/* One chunk of tokens. Writes sum and shift, and dh and dw if gradients are wanted. */
static void chunk(Head *head, float *sum, float *shift, float scale, int threads) {
  const HeadForm *form = head->form;
  set_columns(head);
  for (int exact = 0, safe = 0; !safe; exact = 1) {
    form->largest(head, exact || head->classes < form->classes ? head->classes : form->classes);
    lmu_share(form->exponentials, head, PARTS, threads);
    safe = 1;
    for (int t = 0; t < head->tokens; t++) {
      sum[t] = 0;
      for (int part = 0; part < PARTS; part++) sum[t] += head->sums[part * form->tokens + t];
      safe &= exact || (sum[t] > 0 && sum[t] <= SAFE);
      head->factor[t] = scale / sum[t];
    }
  }
  memcpy(shift, head->shift, (size_t)head->tokens * sizeof(float));
  if (!head->dw) return;
  form->rows(head, head->factor);
  lmu_share(set_dh, head, head->tokens, threads);
  lmu_share(form->weights, head, PARTS, threads);
  head->first = 0;
}

static const HeadForm *choose(int bfloat16, int portable) {
  const HeadForm *form = portable ? NULL : lmu_head_avx512(bfloat16);
  return form || bfloat16 ? form : &lmu_head_portable;
}

/* What this processor has: 0 none of those below, 1 AVX-512, 2 also its products of bfloat16. */
int lmu_head_level(void) { return !lmu_head_avx512(0) ? 0 : !lmu_head_avx512(1) ? 1 : 2; }

/* h [tokens][d], w [classes][d] of float or bfloat16, d a multiple of 16 (portable: of 8).
   sum and shift [tokens]: the log of the softmax's denominator is log(sum) + shift. With dw [classes][d], also the
   gradients of the mean of that logarithm over the tokens; without, dh is not used. Returns 1 when memory ran out. */
int lmu_head(const void *h, const void *w, float *sum, float *shift, float *dh, float *dw, long tokens, long classes,
             int d, int bfloat16, int portable, int threads) {
  Head head = {.form = choose(bfloat16, portable), .w = w, .dw = dw, .classes = classes, .d = d, .first = 1};
  if (!head.form) return 1;
  const long T = head.form->tokens, words = T / head.form->pack, item = 4 / head.form->pack;
  const size_t sizes[] = {4 * (size_t)(classes * words), 4 * (size_t)(words * d), 4 * (size_t)(words * d),
                          4 * (size_t)(PARTS * T), dw ? 4 * (size_t)(PARTS * T * d) : 0};
  void **const parts[] = {&head.e, &head.columns, &head.rows, (void **)&head.sums, (void **)&head.parts};
  size_t total = 0;
  for (int i = 0; i < 5; i++) total += (sizes[i] + 63) / 64 * 64;
  char *scratch = aligned_alloc(64, total), *next = scratch;
  if (!scratch) return 1;
  for (int i = 0; i < 5; next += (sizes[i] + 63) / 64 * 64, i++) *parts[i] = next;
  for (long first = 0; first < tokens; first += T) {
    head.tokens = tokens - first < T ? (int)(tokens - first) : (int)T;
    head.h = (const char *)h + first * d * item;
    head.dh = dh + first * d;
    chunk(&head, sum + first, shift + first, 1.0f / (float)tokens, threads);
  }
  if (!tokens && dw) memset(dw, 0, (size_t)classes * (size_t)d * sizeof(float));
  free(scratch);
  return 0;
}
