/*
 * opdock/compile.h: compiling kernels at run time, in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   opdock_compile_options options = {.struct_size = sizeof options, .source = text,
 *                                     .name = "saxpy.cu", .device = {OPDOCK_CUDA, 0}};
 *   opdock_module* module;
 *   opdock_compile(runtime, &options, &module, err, sizeof err);
 *   opdock_kernel* saxpy;
 *   opdock_module_kernel(module, "saxpy<float>", &saxpy, err, sizeof err);
 *   void* args[] = {&n, &a, &x, &y};
 *   opdock_launch launch = {.struct_size = sizeof launch, .grid = {64, 1, 1},
 *                           .block = {256, 1, 1}, .args = args, .num_args = 4};
 *   opdock_launch_kernel(saxpy, stream, &launch, err, sizeof err);
 *
 * The compiler is the newest NVRTC whose images the driver can run, found in Python wheels, conda,
 * $CUDA_HOME or the system. Results are cached on disk by their inputs, so the next process
 * compiles nothing. docs/guide/compile.md has the details.
 *
 * Errors, threads and buffers are those of opdock.h; the tags are those of plugin.h. Every function
 * here may be called from any thread, on the same module too. A kernel stays valid until the
 * process ends, as its image stays loaded; compiling the same again for the same device gives the
 * same kernels.
 */
#ifndef OPDOCK_COMPILE_H_
#define OPDOCK_COMPILE_H_

#include "opdock/opdock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled program: an opaque handle, freed with opdock_module_free. */
typedef struct opdock_module opdock_module;

typedef struct opdock_header { /* frozen */
  const char* name;            /* as #include spells it: "my/helpers.cuh" */
  const char* text;
} opdock_header;

typedef struct opdock_compile_options {
  uint32_t struct_size;
  uint32_t num_headers;
  const char* source; /* the program: C++ with __global__ functions, NUL-terminated UTF-8 */
  const char* name;   /* what the compiler's messages call it; NULL for "program.cu" */
  /* The headers that #include finds first. The device vocabulary ("opdock/device.cuh") is always
   * available, and so are the toolkit's headers if they are installed next to the compiler. */
  const opdock_header* headers;
  const char* const* options; /* the compiler's, in order; --std=c++17 unless they name another */
  uint32_t num_options;
  uint32_t num_kernels;
  /* Kernels by their C++ names, with template arguments: "ns::f<float, 4>". They are compiled at
   * once, into one image. If none are named, nothing is compiled until a kernel is requested. */
  const char* const* kernels;
  opdock_device device; /* where the kernels are to run; type 0 with `arch` for an image only */
  /* "sm_90a" for a cubin, "compute_90" for PTX, "gfx90a" for a code object; NULL: exactly the
   * device's. */
  const char* arch;
} opdock_compile_options;

/* [any thread]
 * Compiles the program, or finds the result in the cache. All inputs are copied. Blocks for as long
 * as the compiler takes (tens to hundreds of milliseconds), or while another thread or process
 * compiles the same. OPDOCK_INVALID_ARGUMENT: the program, an option or `arch` is faulty; the text
 * holds the compiler's messages with the program's own file names and lines. OPDOCK_NOT_FOUND: no
 * kernel of that name. OPDOCK_INCOMPATIBLE: no compiler for this driver or architecture, or
 * OPDOCK_JIT=never. The runtime must outlive the module. */
OPDOCK_EXPORT opdock_status opdock_compile(opdock_runtime* runtime,
                                           const opdock_compile_options* options,
                                           opdock_module** out, char* error, uint32_t error_size);
/* [any thread, nothing else uses the module]
 * Frees the handle; kernels stay. NULL is fine. */
OPDOCK_EXPORT void opdock_module_free(opdock_module* module);

/* [any thread, not while capturing]
 * Gets the kernel of that name, loaded on the module's device. A kernel that was not named
 * beforehand is compiled now, into an image of its own, so that its __device__ variables are
 * separate from those of the other kernels. Whitespace in names is significant. */
OPDOCK_EXPORT opdock_status opdock_module_kernel(opdock_module* module, const char* name,
                                                 opdock_kernel** out, char* error,
                                                 uint32_t error_size);

typedef struct opdock_module_image {
  uint32_t struct_size; /* set by the caller */
  uint32_t from_cache;  /* 1: no compiler ran for it */
  const uint8_t* bytes; /* cubin, PTX (with its NUL) or code object; valid as long as the module */
  uint64_t size;
  const char* arch;     /* "sm_90a" */
  const char* compiler; /* "NVRTC 12.9" */
  const char* log;      /* the compiler's warnings if it ran now, else "" */
} opdock_module_image;
/* [any thread]
 * Gets the image with the kernels that were named when the module was compiled; if none were named,
 * the whole program except templates, which is compiled now if it was not before. Loads nothing. */
OPDOCK_EXPORT opdock_status opdock_module_get_image(opdock_module* module, opdock_module_image* out,
                                                    char* error, uint32_t error_size);

typedef struct opdock_kernel_info {
  uint32_t struct_size; /* set by the caller */
  uint32_t num_params;  /* meaningful if has_params */
  uint32_t has_params;  /* 1: the driver reports the parameters (CUDA 12.4) */
  uint32_t reserved;
  const uint32_t* param_sizes; /* bytes of each; valid until the process ends */
  const char* image_name;      /* the name in the image, "_Z1fIfEvPT_"; likewise */
  opdock_device device;
} opdock_kernel_info;
/* [any thread]
 * Writes what is known about a kernel into *out, up to the struct_size that the caller has set. */
OPDOCK_EXPORT opdock_status opdock_kernel_get_info(const opdock_kernel* kernel,
                                                   opdock_kernel_info* out, char* error,
                                                   uint32_t error_size);

/* [any thread]
 * Launches the kernel on `stream` (a CUstream or hipStream_t of the kernel's device; NULL: the
 * default stream of its primary context) and returns without waiting for the device. The arguments
 * are read before it returns. */
OPDOCK_EXPORT opdock_status opdock_launch_kernel(opdock_kernel* kernel, void* stream,
                                                 const opdock_launch* launch, char* error,
                                                 uint32_t error_size);

/* [any thread]
 * Writes why this thread's last call of opdock_compile, opdock_module_kernel or
 * opdock_module_get_image failed, as [{"code", "stage", "found", "wanted", "advice"}]; [] if it did
 * not fail. Free the text with opdock_free. */
OPDOCK_EXPORT opdock_status opdock_compile_reasons_json(char** out, char* error,
                                                        uint32_t error_size);

/* [any thread]
 * Compiles into the cache, ahead of time, the device source of the plugins that are found here, for
 * `archs`, a list of NVIDIA or AMD architectures such as "8.0;9.0a gfx90a" or "all-major"
 * (docs/reference/architectures.md; NULL: the visible GPUs), exactly as it would be compiled on
 * such a GPU. `jobs` compilations run at a time, each in a process of its own; 0: as many as there
 * are cores. *out: {"images": [{"plugin", "kernel", "arch", "outcome": "compiled" | "cached" |
 * "failed", "compiler", "reasons"}], "notices"}, with an image for each kernel; free it with
 * opdock_free. Failures are reported in it. OPDOCK_INVALID_ARGUMENT, with nothing compiled, for a
 * list that cannot be read, for an architecture that no compiler here knows, and for NULL if no GPU
 * is visible. Blocks until all are done. */
OPDOCK_EXPORT opdock_status opdock_warm_json(opdock_runtime* runtime, const char* archs,
                                             uint32_t jobs, char** out, char* error,
                                             uint32_t error_size);

/* [any thread]
 * Makes the whole process look for run-time compilers in `folder` first, from now on. The folder
 * holds libnvrtc, or is a Python site-packages folder. */
OPDOCK_EXPORT opdock_status opdock_add_compiler_folder(const char* folder, char* error,
                                                       uint32_t error_size);

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_COMPILE_H_ */
