// ek_cuda_draft_args
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t score, chosen;
    uint64_t ordering;
    uint64_t y;
    uint64_t best;
    uint64_t id, draft, n;
    matrix head;
    int padding; // of matrix
    int n_centroids, top_k, vocab_size, rows, max_;
};
layout(push_constant, scalar) uniform Push { Args a; };

// Scores of a row's tokens of chosen centroids, which replace those of the centroids; and the tokens.
int tokens_of_row()
{
    return a.vocab_size / a.n_centroids * a.top_k;
}

Floats token_scores(int row)
{
    return Floats(a.score + uint64_t(int64_t(row) * int64_t(tokens_of_row()) * 4l));
}

int token_of(int row, int t)
{
    const int each = a.vocab_size / a.n_centroids, c = Ints(a.chosen).at[row * a.top_k + t / each];
    return Ints(a.ordering).at[c * each + t % each];
}
