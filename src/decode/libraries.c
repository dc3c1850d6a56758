#include "decode/libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* --- libraries loaded at run time --- */

/* Code calls the functions by their own names; a stub per function jumps to the library's address. A call before
 * late_open, or after it failed, is the caller's mistake and ends the program. */
typedef struct late_function {
    const char *name;
    void **at;
} late_function;

typedef struct late {
    const char *file; /* the linker's name at build time: "libpng16.so.16" */
    const late_function *function;
    int n;
} late;

/* Finds the library and all its functions. EUNSUPPORTED: the file does not exist, or lacks a function. The functions
 * stay valid until the process ends. */
static ek_err late_open(const late *l)
{
    void *library = dlopen(l->file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return ek_fail(EK_EUNSUPPORTED, "%s is not installed here: %s", l->file, dlerror());
    for (int i = 0; i < l->n; i++) {
        *l->function[i].at = dlsym(library, l->function[i].name);
        if (!*l->function[i].at)
            return ek_fail(EK_EUNSUPPORTED, "%s has no function %s: it is another version than this was built with",
                           l->file, l->function[i].name);
    }
    return EK_OK;
}

#if defined(__x86_64__)
#define JUMP(f) "endbr64\n\tjmp *ek_late_at_" #f "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(f) "hint #34\n\tadrp x16, ek_late_at_" #f "\n\tldr x16, [x16, :lo12:ek_late_at_" #f "]\n\tbr x16\n"
#endif
#if defined(__APPLE__) && defined(__aarch64__)
#define JUMP_APPLE(f) "adrp x16, _ek_late_at_" #f "@PAGE\n\tldr x16, [x16, _ek_late_at_" #f "@PAGEOFF]\n\tbr x16\n"
#elif defined(__APPLE__)
#define JUMP_APPLE(f) "jmp *_ek_late_at_" #f "(%rip)\n"
#endif

/* At file scope, for every function of a library: STUB(png_read_row). */
#ifdef __APPLE__ /* C names have an underscore there */
#define STUB(f)           \
    void *ek_late_at_##f; \
    __asm__(".text\n\t.p2align 4\n\t.globl _" #f "\n\t.private_extern _" #f "\n_" #f ":\n\t" JUMP_APPLE(f));
#else
#define STUB(f)                                                                                                   \
    void *ek_late_at_##f;                                                                                         \
    __asm__(".pushsection .text\n\t.p2align 4\n\t.globl " #f "\n\t.hidden " #f "\n\t.type " #f ", %function\n" #f \
            ":\n\t" JUMP(f) "\t.size " #f ", . - " #f "\n\t.popsection\n");
#endif
/* An element of late.function for the same function. */
#define ENTRY(f) {#f, &ek_late_at_##f},

/* --- their functions --- */

/* clang-format off */
#define JPEG(X)                \
    X(jpeg_CreateDecompress)   \
    X(jpeg_destroy_decompress) \
    X(jpeg_mem_src) X(jpeg_read_header) X(jpeg_read_scanlines) X(jpeg_start_decompress) X(jpeg_std_error)
#define PNG(X)                                                                                                    \
    X(png_create_info_struct)                                                                                     \
    X(png_create_read_struct)                                                                                     \
    X(png_destroy_read_struct)                                                                                    \
    X(png_error)                                                                                                  \
    X(png_get_bit_depth)                                                                                          \
    X(png_get_color_type)                                                                                         \
    X(png_get_error_ptr)                                                                                          \
    X(png_get_image_height)                                                                                       \
    X(png_get_io_ptr)                                                                                             \
    X(png_get_rowbytes) X(png_get_valid) X(png_longjmp) X(png_read_end) X(png_read_info) X(png_read_row)          \
        X(png_read_update_info) X(png_set_chunk_cache_max) X(png_set_chunk_malloc_max)                            \
            X(png_set_expand_gray_1_2_4_to_8) X(png_set_gray_to_rgb) X(png_set_interlace_handling)                \
                X(png_set_keep_unknown_chunks) X(png_set_longjmp_fn) X(png_set_palette_to_rgb) X(png_set_read_fn) \
                    X(png_set_strip_16) X(png_set_strip_alpha) X(png_set_tRNS_to_alpha) X(png_set_user_limits)    \
                        X(png_set_crc_action) X(png_set_benign_errors)
#define ZLIB(X)      X(inflateInit_) X(inflate) X(inflateEnd)
#define WEBP(X)      X(WebPDecode) X(WebPFreeDecBuffer) X(WebPGetFeaturesInternal) X(WebPInitDecoderConfigInternal)
#define WEBPDEMUX(X) X(WebPDemuxDelete) X(WebPDemuxGetFrame) X(WebPDemuxInternal) X(WebPDemuxReleaseIterator)
#define GIF(X)          \
    X(DGifCloseFile)    \
    X(DGifGetExtension) \
    X(DGifGetExtensionNext) X(DGifGetImageDesc) X(DGifGetLine) X(DGifGetRecordType) X(DGifOpen) X(GifErrorString)
#define HEIF(X)                                                                                                       \
    X(heif_context_alloc)                                                                                             \
    X(heif_context_free)                                                                                              \
    X(heif_context_get_number_of_top_level_images)                                                                    \
    X(heif_context_get_primary_image_handle)                                                                          \
    X(heif_context_read_from_memory_without_copy)                                                                     \
    X(heif_context_set_maximum_image_size_limit)                                                                      \
    X(heif_decode_image)                                                                                              \
    X(heif_decoding_options_alloc)                                                                                    \
    X(heif_decoding_options_free)                                                                                     \
    X(heif_image_get_height) X(heif_image_get_plane_readonly) X(heif_image_get_width) X(heif_image_handle_get_height) \
        X(heif_image_handle_get_width) X(heif_image_handle_has_alpha_channel) X(heif_image_handle_release)            \
            X(heif_image_release)
#define SNDFILE(X) X(sf_close) X(sf_open_virtual) X(sf_readf_float) X(sf_seek) X(sf_error) X(sf_strerror) X(sf_command)
#define SOXR(X)    X(soxr_io_spec) X(soxr_oneshot) X(soxr_quality_spec) X(soxr_runtime_spec)
/* clang-format on */

/* The library's file: the name that the linker took from the library. There is no macro if the build had no library. */
#define LATE(id, list)                                                     \
    list(STUB) static const late_function id##_function[] = {list(ENTRY)}; \
    static const late id##_late = {EK_SO_##id, id##_function, sizeof id##_function / sizeof *id##_function};
/* The tarball's helper contains all libraries except libheif (tools/make/dist.mk). */
#ifdef EK_LIBRARIES_LINKED
#define LIBRARY(id, list) static const late id##_late = {0};
#else
#define LIBRARY LATE
#endif

#ifdef EK_SO_JPEG
LIBRARY(JPEG, JPEG)
#endif
#ifdef EK_SO_PNG
LIBRARY(PNG, PNG)
LIBRARY(ZLIB, ZLIB)
#endif
#ifdef EK_SO_WEBP
LIBRARY(WEBP, WEBP)
LIBRARY(WEBPDEMUX, WEBPDEMUX)
#endif
#ifdef EK_SO_GIF
LIBRARY(GIF, GIF)
#endif
#ifdef EK_SO_HEIF
LATE(HEIF, HEIF)
#endif
#ifdef EK_SO_SNDFILE
LIBRARY(SNDFILE, SNDFILE)
#endif
#ifdef EK_SO_SOXR
LIBRARY(SOXR, SOXR)
#endif

/* The functions of each library, without a file if they are linked, and the reason if a library is missing. */
static const late *const parts[EK_LIBRARIES][2] = {
#ifdef EK_SO_JPEG
    [EK_LIBRARY_JPEG] = {&JPEG_late},
#endif
#ifdef EK_SO_PNG
    [EK_LIBRARY_PNG] = {&PNG_late, &ZLIB_late},
#endif
#ifdef EK_SO_WEBP
    [EK_LIBRARY_WEBP] = {&WEBP_late, &WEBPDEMUX_late},
#endif
#ifdef EK_SO_GIF
    [EK_LIBRARY_GIF] = {&GIF_late},
#endif
#ifdef EK_SO_HEIF
    [EK_LIBRARY_HEIF] = {&HEIF_late},
#endif
#ifdef EK_SO_SNDFILE
    [EK_LIBRARY_SNDFILE] = {&SNDFILE_late},
#endif
#ifdef EK_SO_SOXR
    [EK_LIBRARY_SOXR] = {&SOXR_late},
#endif
};
static const char *const name[EK_LIBRARIES] = {"libjpeg", "libpng",     "libwebp", "giflib",
                                               "libheif", "libsndfile", "libsoxr"};
static char why[EK_LIBRARIES][256]; /* empty: the library exists */

static void open_all(void)
{
    for (int l = 0; l < EK_LIBRARIES; l++) {
        if (!parts[l][0]) snprintf(why[l], sizeof why[l], "this build had no %s", name[l]);
        for (int i = 0; i < 2 && parts[l][i]; i++)
            if (parts[l][i]->file && late_open(parts[l][i])) snprintf(why[l], sizeof why[l], "%s", ek_err_text());
    }
}

void ek_libraries_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_all);
}

bool ek_library_there(ek_library l)
{
    return !why[l][0];
}

ek_err ek_library_need(ek_library l, const char *what)
{
    if (ek_library_there(l)) return EK_OK;
    return ek_fail(EK_EINVAL, "%s are not read here: %s", what, why[l]);
}
