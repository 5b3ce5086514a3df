/* The head's loss in parts that differ between processors (head.c says what is computed).

   A word is what a lane holds: a float, or two neighbouring bfloat16 of a sum. Layouts in words, T tokens of a chunk:
     w [classes][d / pack], columns (h') [d / pack][T], e [classes][T / pack], rows (h / sum) [T / pack][d].
   Sums and dh are made for PARTS of the classes, whose number does not depend on the threads: so neither do the bits. */

#ifndef LMU_HEAD_H
#define LMU_HEAD_H

#define W 8 /* of what is not written for AVX-512 */
#include "vector.h"

#define MOST_TOKENS 384 /* of a chunk */
#define PARTS 32

typedef struct Head Head;

typedef struct {
  int pack, tokens, classes; /* numbers in a word; tokens of a chunk; classes at a time, which stay in cache */
  void (*largest)(Head *, long classes);
  int (*exponentials)(const void *, int, long, long); /* of some parts, with their sums and dh */
  int (*weights)(const void *, int, long, long);      /* dw of some parts */
  void (*rows)(const Head *, const float *factor);
} HeadForm;

struct Head {
  const HeadForm *form;
  const void *h, *w; /* h of this chunk */
  void *e, *columns, *rows;
  float *sums, *parts, *dh, *dw; /* sums [PARTS][T], parts [PARTS][T][d]; dh of this chunk */
  float shift[MOST_TOKENS], factor[MOST_TOKENS];
  long classes;
  int d, tokens, first; /* first: dw is stored, not added to */
};

/* The classes of a part. */
static inline long part_start(const Head *head, long part) {
  const long size = head->form->classes, tiles = (head->classes + size - 1) / size, start = tiles * part / PARTS * size;
  return start < head->classes ? start : head->classes;
}

extern const HeadForm lmu_head_portable;
/* The best form for this processor (bfloat16: of those for it), or NULL. */
const HeadForm *lmu_head_avx512(int bfloat16);

#endif
