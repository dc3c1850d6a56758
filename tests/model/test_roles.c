/* Which activations each matrix of a published model is multiplied with: stated here, so that a
 * change of the policy (model/weights/role.c) is a change of this table and not only of stored bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "model/weights/weights.h"

/* By the end of the matrix's name; an expert's number is left out. */
static const struct {
    const char *name;
    ek_matrix_role role;
    int limbs; /* of --activations auto with weights of up to 6 bits; with 8 bits all have two */
} roles[] = {
    {"embed_tokens", EK_ROLE_HEAD, 2},
    {"self_attn.q_proj", EK_ROLE_Q, 1},
    {"self_attn.k_proj", EK_ROLE_K, 2},
    {"self_attn.v_proj", EK_ROLE_V, 2},
    {"self_attn.o_proj", EK_ROLE_O, 1},
    {"mlp.gate_proj", EK_ROLE_GATE, 1},
    {"mlp.up_proj", EK_ROLE_UP, 1},
    {"mlp.down_proj", EK_ROLE_DOWN, 1},
    {"router.proj", EK_ROLE_ROUTER, 2},
    {"experts.gate_up_proj", EK_ROLE_EXPERT_GATE, 1},
    {"experts.gate_up_proj", EK_ROLE_EXPERT_UP, 1},
    {"experts.down_proj", EK_ROLE_EXPERT_DOWN, 1},
    {"per_layer_model_projection", EK_ROLE_PER_LAYER_MODEL_PROJECTION, 2},
    {"per_layer_input_gate", EK_ROLE_PER_LAYER_GATE, 2},
    {"per_layer_projection", EK_ROLE_PER_LAYER_PROJECTION, 2},
};
enum { ROLES = sizeof roles / sizeof *roles };

static bool is_called(const ek_item *it, const char *name)
{
    char bare[144];
    snprintf(bare, sizeof bare, "%s", it->name);
    size_t n = strlen(bare);
    while (n && bare[n - 1] >= '0' && bare[n - 1] <= '9') n--;
    if (n && bare[n - 1] == '.') bare[n - 1] = '\0';
    char *tail = strstr(bare, ".tail");
    if (tail) *tail = '\0';
    size_t end = strlen(bare), want = strlen(name);
    return end >= want && strcmp(bare + end - want, name) == 0;
}

static int stated(int role, int bits, ek_activations a)
{
    return a == EK_ACTIVATIONS_8 ? 1 : a == EK_ACTIVATIONS_16 || bits == 8 ? 2 : roles[role].limbs;
}

static void check_item(const ek_item *it, int bits, const ek_pack_opts *o, int *n_checked)
{
    const ek_linear *w = it->matrix;
    int found = 0;
    for (int i = 0; i < ROLES; i++) {
        if (roles[i].role != it->role || !is_called(it, roles[i].name)) continue;
        found++, n_checked[i]++;
        if (o->exact || !bits) {
            assert_int_equal(w->limbs, 0);
            assert_int_equal(w->form, o->exact && it->data.type->unpack ? EK_W_F32 : EK_W_BF16);
            continue;
        }
        const int limbs = stated(i, bits, o->activations);
        if (w->limbs != limbs || w->a_group != (w->group == 32 ? 32 : 64) || w->bits != bits)
            fail_msg("%s: %d limbs in groups of %d, %d bits; %d limbs are stated", it->name, w->limbs, w->a_group,
                     w->bits, limbs);
    }
    if (found != 1) fail_msg("%s: fits %d roles of the table, its role is %d", it->name, found, (int)it->role);
}

static void each_role_of_published_models(void **state)
{
    (void)state;
    static const char *const names[] = {"e2b", "e4b", "12b", "26b", "31b"};
    static const int all_bits[] = {4, 8, 0};
    int n_checked[ROLES] = {0};
    for (int n = 0; n < 5; n++)
        for (int b = 0; b < 3; b++)
            for (int way = 0; way < 4; way++) { /* --activations auto, 8, 16; --weights exact */
                ek_config *c = ek_alloc(sizeof *c);
                ek_weights *w = ek_alloc(sizeof *w);
                ek_items list;
                ek_pack_opts o = {.cpu = ek_cpu_detect(), .exact = way == 3, .activations = (ek_activations)(way % 3)};
                assert_int_equal(ek_config_published(c, names[n], 0), EK_OK);
                ek_items_invent(&list, w, c, all_bits[b]);
                if (ek_items_plan(&list, w, &o)) fail_msg("%s", ek_err_text());
                for (int i = 0; i < list.n; i++)
                    if (list.item[i].matrix) check_item(&list.item[i], all_bits[b], &o, n_checked);
                ek_items_fini(&list);
                ek_weights_fini(w);
                free(w), free(c);
            }
    for (int i = 0; i < ROLES; i++) assert_true(n_checked[i] > 0);
}

/* The group of activations follows the weights' group, whatever the role; 6 bits count as few. */
static void groups_and_widths(void **state)
{
    (void)state;
    static const int group[] = {32, 64, 128}, all_bits[] = {2, 3, 4, 5, 6, 8};
    for (int i = 0; i < 3 * 6 * 3; i++)
        for (int role = 0; role < ROLES; role++) {
            const int bits = all_bits[i / 3 % 6];
            const ek_activations way = (ek_activations)(i / 18);
            const ek_weight_type *t;
            assert_int_equal(ek_weight_type_affine(&t, bits, group[i % 3], EK_BF16, true), EK_OK);
            ek_act_form a = ek_role_acts(roles[role].role, t, way);
            assert_int_equal(a.group, group[i % 3] == 32 ? 32 : 64);
            assert_int_equal(a.limbs, stated(role, bits, way));
        }
}

static void names(void **state)
{
    (void)state;
    ek_activations a;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ek_activations_parse(ek_activations_name((ek_activations)i), &a), EK_OK);
        assert_int_equal(a, i);
    }
    assert_int_equal(ek_activations_parse("12", &a), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "auto, 8 and 16"));
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_role_of_published_models),
                                       cmocka_unit_test(groups_and_widths), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
