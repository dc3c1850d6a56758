/* Which activations each matrix of a published model is multiplied with: stated here, so that a
 * change of the policy (model/role.c) is a change of this table and not only of stored bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"
#include "model/weights.h"

/* By the end of the matrix's name; an expert's number is left out. */
static const struct {
    const char *name;
    ek_role role;
    int limbs;
} roles[] = {
    {"embed_tokens", EK_ROLE_HEAD, 1},
    {"self_attn.q_proj", EK_ROLE_Q, 2},
    {"self_attn.k_proj", EK_ROLE_K, 2},
    {"self_attn.v_proj", EK_ROLE_V, 2},
    {"self_attn.o_proj", EK_ROLE_O, 2},
    {"mlp.gate_proj", EK_ROLE_GATE, 2},
    {"mlp.up_proj", EK_ROLE_UP, 2},
    {"mlp.down_proj", EK_ROLE_DOWN, 2},
    {"router.proj", EK_ROLE_ROUTER, 2},
    {"experts.gate_up_proj", EK_ROLE_EXPERT_GATE, 2},
    {"experts.gate_up_proj", EK_ROLE_EXPERT_UP, 2},
    {"experts.down_proj", EK_ROLE_EXPERT_DOWN, 2},
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

static void check_item(const ek_item *it, int bits, bool exact, int *seen)
{
    const ek_linear *w = it->matrix;
    int found = 0;
    for (int i = 0; i < ROLES; i++) {
        if (roles[i].role != it->role || !is_called(it, roles[i].name)) continue;
        found++, seen[i]++;
        if (exact || !bits) {
            assert_int_equal(w->limbs, 0);
            assert_int_equal(w->form, exact && it->data.type->unpack ? EK_W_F32 : EK_W_BF16);
            continue;
        }
        if (w->limbs != roles[i].limbs || w->a_group != (w->group == 32 ? 32 : 64) || w->bits != bits)
            fail_msg("%s: %d limbs in groups of %d, %d bits; %d limbs are stated", it->name, w->limbs, w->a_group,
                     w->bits, roles[i].limbs);
    }
    if (found != 1) fail_msg("%s: fits %d roles of the table, its role is %d", it->name, found, (int)it->role);
}

static void each_role_of_published_models(void **state)
{
    (void)state;
    static const char *const names[] = {"e2b", "e4b", "12b", "26b", "31b"};
    static const int all_bits[] = {4, 8, 0};
    int seen[ROLES] = {0};
    for (int n = 0; n < 5; n++)
        for (int b = 0; b < 3; b++)
            for (int exact = 0; exact < 2; exact++) {
                ek_config *c = ek_alloc(sizeof *c);
                ek_weights *w = ek_alloc(sizeof *w);
                ek_items list;
                ek_pack_opts o = {.cpu = ek_cpu_detect(), .exact = exact};
                assert_int_equal(ek_config_published(c, names[n], 0), EK_OK);
                ek_items_invent(&list, w, c, all_bits[b]);
                if (ek_items_plan(&list, w, &o)) fail_msg("%s", ek_err_text());
                for (int i = 0; i < list.n; i++)
                    if (list.item[i].matrix) check_item(&list.item[i], all_bits[b], exact, seen);
                ek_items_fini(&list);
                ek_weights_fini(w);
                free(w), free(c);
            }
    for (int i = 0; i < ROLES; i++) assert_true(seen[i] > 0);
}

/* The group of activations follows the weights' group, whatever the role. */
static void groups(void **state)
{
    (void)state;
    static const int group[] = {32, 64, 128};
    for (int g = 0; g < 3; g++)
        for (int r = 0; r < EK_ROLE_COUNT; r++) {
            const ek_weight_type *t;
            assert_int_equal(ek_weight_type_affine(&t, 4, group[g], EK_BF16, true), EK_OK);
            ek_act_form a = ek_role_acts((ek_role)r, t);
            assert_int_equal(a.group, group[g] == 32 ? 32 : 64);
            assert_int_equal(a.limbs, r == EK_ROLE_HEAD ? 1 : 2);
        }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_role_of_published_models), cmocka_unit_test(groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
