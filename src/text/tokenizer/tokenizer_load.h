/* Reading the sections of a tokenizer.json. Every assumption of the encoder is checked: EFORMAT where the file is
 * damaged, EUNSUPPORTED where it asks for another algorithm. Inside src/text/tokenizer/tokenizer*.c only. */
#ifndef EK_TEXT_TOKENIZER_LOAD_H
#define EK_TEXT_TOKENIZER_LOAD_H

#include "text/tokenizer/tokenizer_data.h"
#include "text/tokenizer/tokenizer_file.h"

/* Reads {"piece": id, ...} at c into blob and pieces, whose capacity is *cap; *n_vocab counts the entries. */
ek_err ek_vocab_read(ek_tokenizer *t, ek_cursor *c, int32_t *cap, int32_t *n_vocab);
/* Makes the index of pieces, with room for n_entries; EFORMAT for a text with two ids. */
ek_err ek_vocab_index(ek_tokenizer *t, size_t n_entries);
/* Adds the added tokens and builds their tries; needs the index and the normalizer. */
ek_err ek_added_read(ek_tokenizer *t, const json_t *added, int32_t *cap);
/* Derives what each piece decodes to, the scalars that are pieces, and where text may be cut. */
void ek_pieces_derive(ek_tokenizer *t);

ek_err ek_normalizer_read(ek_tokenizer *t, const json_t *v);
/* Accepts none, and a split on a text that the normalizer has replaced already: it never splits. */
ek_err ek_pre_tokenizer_check(const ek_tokenizer *t, const json_t *v);
ek_err ek_decoder_read(ek_tokenizer *t, const json_t *v);
/* Reads the switches of the model section, its unknown token and its byte pieces; needs the index. */
ek_err ek_model_rules_read(ek_tokenizer *t, const json_t *m);

#endif
