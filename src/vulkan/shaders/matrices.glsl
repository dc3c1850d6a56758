// Products of bytes by matrices that the 32 threads of a subgroup hold together: LEFT has 16 rows of 32 bytes, RIGHT 16
// columns of 32, SUMS 16 x 16 numbers of 32 bits, eight for each thread. The driver chooses the elements of each
// thread. NUMBERS fills a matrix with 16 row + column, so a thread can read the numbers of its elements. Debian's glslc
// knows only NVIDIA's extension; vulkan/matrices.c turns it into KHR's.
//
// EK_SOFT: by packed products, computed by 32 adjacent threads. A device that needs fma by integers has no such
// matrices (lavapipe of Mesa 22), but tests run these shaders there, too.
#if EK_SOFT
#define LEFT       ivec2
#define RIGHT      ivec2
#define SUMS       int[8]
#define ZERO_SUMS  int[8](0, 0, 0, 0, 0, 0, 0, 0)
#define SUBGROUP   (int(gl_LocalInvocationIndex) / 32)
#define LOAD_LEFT(m, array, at, stride)  m = ivec2(at, stride)
#define LOAD_RIGHT(m, array, at, stride) m = ivec2(at, stride)

// Quads of the shared memory from which matrices are loaded.
uvec4 left_quad(int i);
uvec4 right_quad(int i);

int number_of(int c)
{
    return int(gl_LocalInvocationIndex) % 32 * 8 + c;
}

SUMS ADD_PRODUCT(ivec2 left, ivec2 right, SUMS sum)
{
    for (int c = 0; c < 8; c++)
        for (int quad = 0; quad < 2; quad++) {
            const uvec4 a = left_quad(left.x + number_of(c) / 16 * left.y + quad);
            const uvec4 b = right_quad(right.x + number_of(c) % 16 * right.y + quad);
            sum[c] += dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
        }
    return sum;
}

#define NUMBERS(m, array, stride) \
    for (int c_ = 0; c_ < 8; c_++) m[c_] = number_of(c_)
#define STORE_SUMS(m, array, first, stride) \
    for (int c_ = 0; c_ < 8; c_++)          \
    array[(first) + number_of(c_) / 16 * (stride) + number_of(c_) % 16 / 4][number_of(c_) % 4] = uint(m[c_])
#else
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require
#define LEFT       icoopmatNV<8, gl_ScopeSubgroup, 16, 32>
#define RIGHT      icoopmatNV<8, gl_ScopeSubgroup, 32, 16>
#define SUMS       icoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define ZERO_SUMS  SUMS(0)
#define SUBGROUP   int(gl_SubgroupID)
#define LOAD_LEFT(m, array, at, stride)   coopMatLoadNV(m, array, at, stride, false)
#define LOAD_RIGHT(m, array, at, stride)  coopMatLoadNV(m, array, at, stride, true)
#define ADD_PRODUCT                       coopMatMulAddNV
#define NUMBERS(m, array, stride)         coopMatLoadNV(m, array, 0, stride, false) /* which has them in order */
#define STORE_SUMS(m, array, at, stride)  coopMatStoreNV(m, array, at, stride, false)
#endif
