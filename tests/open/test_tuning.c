/* Times that a card measured, kept in a file: what was written is read again, and nothing else is believed; a card
 * without times measures them once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/fake_cuda.h"
#include "../support/files.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "open/card.h"
#include "open/device.h"

static const char key[] = "NVIDIA A10, 72 multiprocessors, driver 13.0, sm_86, evenkeel 1, times 01234567";
static const double measured[EK_CUDA_FAMILIES] = {0.5, 1.25, 2, 1, 0.0125, 99.5, 1.0001, 1.5, 0.5, 1};

static void put(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static int files_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = -2; /* . and .. */
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* Deletes a folder and the files in it. */
static void empty(const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') unlink(ek_buf_text(&path));
        ek_buf_fini(&path);
    }
    closedir(d);
    rmdir(folder);
}

static void what_was_written_is_read_again(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_buf folder = {0}, path = {0};
    double factor[EK_CUDA_FAMILIES] = {0};
    ek_buf_fmt(&folder, "%s/cache/evenkeel", dir); /* neither is there */
    ek_tuning_path(&path, ek_buf_text(&folder), key);
    assert_string_equal(ek_buf_text(&path) + folder.len,
                        "/times-NVIDIA-A10-72-multiprocessors-driver-13.0-sm-86-evenkeel-1-"
                        "times-01234567");
    assert_int_equal(ek_tuning_read(factor, ek_buf_text(&path), key), EK_ENOTFOUND);
    for (int i = 0; i < 2; i++) { /* over another, too */
        assert_int_equal(ek_tuning_write(measured, ek_buf_text(&folder), ek_buf_text(&path), key), EK_OK);
        assert_int_equal(ek_tuning_read(factor, ek_buf_text(&path), key), EK_OK);
        for (int f = 0; f < EK_CUDA_FAMILIES; f++) assert_true(factor[f] == measured[f]);
        assert_int_equal(files_in(ek_buf_text(&folder)), 1);
    }
    unlink(ek_buf_text(&path)), rmdir(ek_buf_text(&folder));
    ek_buf_clear(&folder), ek_buf_fmt(&folder, "%s/cache", dir);
    rmdir(ek_buf_text(&folder));
    ek_buf_fini(&folder), ek_buf_fini(&path);
    remove_dir(dir);
}

static void damaged_and_foreign_files_are_not_believed(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_buf path = {0}, text = {0};
    double factor[EK_CUDA_FAMILIES];
    ek_tuning_path(&path, dir, key);
    const char *const at = ek_buf_text(&path);
    assert_int_equal(ek_tuning_write(measured, dir, at, key), EK_OK);
    assert_int_equal(ek_file_read(&text, at, 4096), EK_OK);
    assert_int_equal(ek_tuning_read(factor, at, "NVIDIA A10, another driver"), EK_EFORMAT);
    char *const copy = malloc(text.len + 1);
    for (size_t i = 0; i < text.len; i++) {
        memcpy(copy, text.data, text.len);
        put(at, copy, i); /* cut */
        assert_int_equal(ek_tuning_read(factor, at, key), EK_EFORMAT);
        for (int bit = 0; bit < 8; bit += 3) {
            copy[i] = (char)(text.data[i] ^ 1 << bit);
            put(at, copy, text.len);
            assert_int_equal(ek_tuning_read(factor, at, key), EK_EFORMAT);
        }
    }
    memcpy(copy, text.data, text.len), copy[text.len] = 'x';
    put(at, copy, text.len + 1);
    assert_int_equal(ek_tuning_read(factor, at, key), EK_EFORMAT);
    const double absurd[EK_CUDA_FAMILIES] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(ek_tuning_write(absurd, dir, at, key), EK_OK);
    assert_int_equal(ek_tuning_read(factor, at, key), EK_EFORMAT);
    free(copy);
    unlink(at);
    assert_int_equal(mkdir(at, 0700), 0); /* something else */
    assert_int_equal(ek_tuning_read(factor, at, key), EK_EIO);
    assert_int_equal(ek_tuning_write(measured, dir, at, key), EK_EIO);
    assert_int_equal(files_in(dir), 1);
    rmdir(at);
    put(at, "", 0); /* no folder */
    assert_int_equal(ek_tuning_write(measured, at, "/nowhere/x", key), EK_EIO);
    unlink(at);
    ek_buf_fini(&path), ek_buf_fini(&text);
    remove_dir(dir);
}

static void the_folder_is_the_users(void **state)
{
    (void)state;
    static const struct {
        const char *xdg, *home, *folder;
    } rows[] = {{"/c", "/h", "/c/evenkeel"},
                {NULL, "/h", "/h/.cache/evenkeel"},
                {"", "/h", "/h/.cache/evenkeel"},
                {"relative", "/h", "/h/.cache/evenkeel"}, /* which XDG forbids */
                {NULL, NULL, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_buf b = {0};
        unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
        if (rows[i].xdg) setenv("XDG_CACHE_HOME", rows[i].xdg, 1);
        if (rows[i].home) setenv("HOME", rows[i].home, 1);
        ek_tuning_folder(&b, getenv);
        assert_string_equal(ek_buf_text(&b), rows[i].folder);
        ek_buf_fini(&b);
    }
}

/* --- on a device that has a clock */

static int capability;
static float clock_ms;

static CUresult attribute(int *value, int which, CUdevice device)
{
    (void)device;
    *value = which == EK_CU_ATTR_MAJOR ? capability / 10 : which == EK_CU_ATTR_MINOR ? capability % 10 : 28;
    return EK_CU_OK;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
    (void)from, (void)to;
    *ms = clock_ms;
    return EK_CU_OK;
}

typedef struct taken {
    bool measured, set; /* kernels were launched; the times are not the built-in ones */
    ek_cuda_times us;
} taken;

static taken take(void (*tune)(ek_cuda *c), int of, float ms)
{
    static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
    ek_cuda_api api;
    ek_cuda *c;
    fake_cuda_reset(&api);
    api.cuDeviceGetAttribute = attribute, api.cuEventElapsedTime = elapsed;
    capability = of, clock_ms = ms;
    assert_int_equal(ek_cuda_open(&c, &api, modules, 13000, 0, 0), EK_OK);
    const int blocks = fake.blocks;
    tune(c);
    assert_int_equal(fake.blocks, blocks);
    const ek_cuda_times *us = ek_cuda_chip_of(c)->us;
    const taken t = {fake.launches > 0, us != &ek_cuda_us && us != &ek_cuda_us_mma, *us};
    ek_cuda_close(c);
    return t;
}

static void a_card_without_times_measures_them_once(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_buf folder = {0}, path = {0};
    setenv("XDG_CACHE_HOME", dir, 1);
    ek_tuning_folder(&folder, getenv);
    const taken none = take(ek_tuning_take, 86, 0); /* no clock */
    assert_true(none.measured && !none.set);
    assert_int_equal(files_in(dir), 0);
    const taken first = take(ek_tuning_take, 86, 0.6f), second = take(ek_tuning_take, 86, 7);
    assert_true(first.measured && first.set && !second.measured && second.set);
    assert_true(fabs(first.us.tile.alone / second.us.tile.alone - 1) < 1e-3); /* as the file's digits say */
    assert_int_equal(files_in(ek_buf_text(&folder)), 1);
    const taken again = take(ek_tuning_again, 86, 1.2f), then = take(ek_tuning_take, 86, 7);
    assert_true(again.measured && !then.measured);
    assert_true(fabs(again.us.mid.each / first.us.mid.each - 2) < 1e-3);
    assert_true(fabs(then.us.mid.each / first.us.mid.each - 2) < 1e-3);
    const taken other = take(ek_tuning_take, 80, 0.6f), fitted = take(ek_tuning_take, 90, 0.6f);
    assert_true(other.measured && !fitted.measured && !fitted.set);
    assert_int_equal(files_in(ek_buf_text(&folder)), 2);

    DIR *d = opendir(ek_buf_text(&folder));
    for (struct dirent *e; (e = readdir(d));) { /* damaged */
        if (e->d_name[0] == '.') continue;
        ek_buf_clear(&path), ek_buf_fmt(&path, "%s/%s", ek_buf_text(&folder), e->d_name);
        put(ek_buf_text(&path), "units 1", 7);
    }
    closedir(d);
    assert_true(take(ek_tuning_take, 86, 0.6f).measured && !take(ek_tuning_take, 86, 0.6f).measured);
    empty(ek_buf_text(&folder));
    put(ek_buf_text(&folder), "", 0); /* no folder: it is used all the same */
    const taken kept_nowhere = take(ek_tuning_take, 86, 0.6f);
    assert_true(kept_nowhere.measured && kept_nowhere.set);
    unlink(ek_buf_text(&folder));
    ek_buf_fini(&folder), ek_buf_fini(&path);
    remove_dir(dir);
}

/* --- on a plain device, whose kernels take the host's time, which a test makes up */

static double matrices_take; /* over packed products */
static double made_up;       /* seconds of the clock; 0: it is the machine's */

double __real_ek_now(void);
double __wrap_ek_now(void); /* the linker gives it to all callers (Makefile) */

double __wrap_ek_now(void)
{
    return made_up > 0 ? made_up : __real_ek_now();
}

static CUresult spend(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    const char *const name = (const char *)f;
    const bool narrow = config->gridDimX * (strstr(name, "_coop_")   ? 8
                                            : strstr(name, "_many_") ? 4
                                                                     : 1) <=
                        EK_CUDA_NARROW;
    const double tile = narrow ? 24.5e-6 : 48.7e-6, few = 5e-6; /* seconds; a few rows are four */
    const double each = strstr(name, "_coop_") ? tile * matrices_take : strstr(name, "_many_") ? tile : few;
    (void)args, (void)extra;
    fake.launches++;
    made_up += each * config->gridDimY;
    return EK_CU_OK;
}

static ek_cuda_chip measure_plain(void (*tune)(ek_cuda *c), int of, double matrices)
{
    static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
    static ek_cuda_times us;
    ek_cuda_api api;
    ek_cuda *c;
    fake_cuda_reset(&api);
    api.cuDeviceGetAttribute = attribute, api.cuEventElapsedTime = elapsed, api.cuLaunchKernelEx = spend;
    capability = of, clock_ms = 0, matrices_take = matrices, made_up = 1;
    assert_int_equal(ek_cuda_open(&c, &api, modules, 13000, 0, 0), EK_OK);
    tune(c);
    ek_cuda_chip chip = *ek_cuda_chip_of(c);
    us = *chip.us, chip.us = &us, made_up = 0;
    ek_cuda_close(c);
    return chip;
}

static void a_plain_device_measures_where_tiles_begin(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_buf folder = {0};
    setenv("XDG_CACHE_HOME", dir, 1);
    ek_tuning_folder(&folder, getenv);
    const ek_cuda_chip packed = measure_plain(ek_tuning_again, EK_CUDA_PLAIN, 1);
    assert_true(packed.us->plain.narrow == 24 && packed.us->plain.wide == 48 && !packed.matrices);
    const ek_cuda_chip fast = measure_plain(ek_tuning_again, EK_CUDA_PLAIN_MATRICES, 0.5);
    assert_true(fast.us->plain.narrow == 12 && fast.us->plain.wide == 24 && fast.matrices);
    assert_true(fast.us->plain.matrices < 0.8);
    const int kept = fake.launches;
    assert_true(kept > 0);
    const ek_cuda_chip slow = measure_plain(ek_tuning_again, EK_CUDA_PLAIN_MATRICES, 3);
    assert_true(slow.us->plain.matrices > 1 && !slow.matrices);
    empty(ek_buf_text(&folder));
    ek_buf_fini(&folder);
    remove_dir(dir);
}

/* What a start wrote on standard error, with lines of each opening silenced. */
static int lines_of(const char *at, void (*tune)(ek_cuda *c), const char *with)
{
    ek_buf said = {0};
    FILE *f = fopen(at, "w+b");
    assert_non_null(f);
    const int old = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    take(tune, 86, 0.6f);
    dup2(old, STDERR_FILENO), close(old), fclose(f);
    assert_int_equal(ek_file_read(&said, at, 4096), EK_OK);
    int n = 0;
    for (const char *p = said.len ? ek_buf_text(&said) : ""; (p = strstr(p, with)); p++) n++;
    ek_buf_fini(&said);
    return n;
}

static void the_measurement_is_said_once_wherever_it_happens(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_buf folder = {0}, path = {0}, said = {0};
    ek_buf_fmt(&said, "%s/said", dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    ek_tuning_folder(&folder, getenv);
    ek_log_set(EK_LOG_NOTICE); /* as selftest */
    const char *const at = ek_buf_text(&said);
    assert_int_equal(lines_of(at, ek_tuning_take, "measured in"), 1);
    assert_int_equal(lines_of(at, ek_tuning_take, "\n"), 0);
    assert_int_equal(lines_of(at, ek_tuning_again, "kept in"), 1);
    unlink(at);
    empty(ek_buf_text(&folder));
    put(ek_buf_text(&folder), "", 0); /* no folder */
    assert_int_equal(lines_of(at, ek_tuning_take, "not kept"), 1);
    unlink(ek_buf_text(&folder)), unlink(at);
    unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
    assert_int_equal(lines_of(at, ek_tuning_take, "no HOME to keep it in"), 1);
    unlink(at);
    ek_log_set(EK_LOG_INFO);
    ek_buf_fini(&folder), ek_buf_fini(&path), ek_buf_fini(&said);
    remove_dir(dir);
}

static void words(void **state)
{
    (void)state;
    ek_device d = {0};
    assert_int_equal(ek_device_set_tune(&d, NULL), EK_OK);
    assert_int_equal(d.tune, EK_TUNE_AUTO);
    assert_int_equal(ek_device_set_tune(&d, "off"), EK_OK);
    assert_int_equal(d.tune, EK_TUNE_OFF);
    assert_int_equal(ek_device_set_tune(&d, "again"), EK_OK);
    assert_int_equal(d.tune, EK_TUNE_AGAIN);
    assert_int_equal(ek_device_set_tune(&d, "on"), EK_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_written_is_read_again),
                                       cmocka_unit_test(damaged_and_foreign_files_are_not_believed),
                                       cmocka_unit_test(the_folder_is_the_users),
                                       cmocka_unit_test(a_card_without_times_measures_them_once),
                                       cmocka_unit_test(a_plain_device_measures_where_tiles_begin),
                                       cmocka_unit_test(the_measurement_is_said_once_wherever_it_happens),
                                       cmocka_unit_test(words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
