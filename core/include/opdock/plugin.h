/*
 * opdock/plugin.h: the binary interface between the Opdock host and an op plugin.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A plugin is a shared object that exports one function, OPDOCK_ENTRY, and carries an ELF note that
 * says what it needs (docs/reference/note.md). The host first checks the note and the file. Only
 * then does it load the file, call the entry function, and compare what that returns with the note.
 *
 * Rules that hold everywhere
 *   Versions    The ABI has a major and a minor number. The major changes when a frozen struct, the
 *               meaning of a member or of a function changes, or a member is removed; a host loads
 *               only its own major. The minor changes when a member, a flag, a status, a value tag
 *               or an extension is added; a host loads a plugin of any minor of its major.
 *               Major 0 is a draft: anything may change with its minor, and a host loads only its
 *               own minor. The list at the end of this file says what changed.
 *   Structs     A struct that begins with `struct_size` may grow at its end. The writer fills in
 *               sizeof of its own declaration. A member exists only if it lies inside struct_size,
 *               and a function pointer may be called only if it is also non-NULL (OPDOCK_HAS).
 *               Structs without struct_size are frozen within a major.
 *   Ownership   Every pointer is borrowed for the duration of the call unless its comment says so.
 *   Strings     UTF-8 and NUL-terminated, unless a length accompanies them.
 *   Errors      Functions return an opdock_status and write a sentence into the call's error
 *               buffer. No exception crosses this interface.
 *   Threads     The tag of a function says from which threads it may be called. Two calls of one
 *               op may run at once, unless the op lacks OPDOCK_OP_THREAD_SAFE: then the host
 *               serialises them.
 *   Blocking    Only functions whose comment says so may block.
 *
 * Tags
 *   The comment of each function of this interface, also in the other headers, begins with a tag in
 *   square brackets: from which thread and in which state the function may be called. For one that
 *   a plugin or a program provides, such as run or a hook, the tag says from where the host calls
 *   it.
 *
 *   any thread       From any thread, at any time, and from several threads at once: also within
 *                    init, plan, prepare and run, and on threads that a plugin or a program starts.
 *   planning         Within opdock_op.plan, prepare or run: with the opdock_call that the host has
 *   preparing        passed to that function, before it returns, and on the thread on which the
 *   running          host called it. Several of these words mean any of these states. In another
 *                    state most functions fail with OPDOCK_INTERNAL.
 *   calling thread   A function of the program, on the thread whose call of a function of opdock.h
 *                    or compile.h has led to it, before that call returns.
 *   helper thread    A function of the program, on a thread of the host, while the calling thread
 *                    waits.
 *   not while capturing
 *                    Not while a stream (with an opdock_call, its stream) is being captured into a
 *                    graph: the function may fail, and may invalidate the capture.
 *
 *   Any other condition stands in words after a comma.
 *
 * Further functions of the host are extensions, each in a header of its own: attention.h, cancel.h,
 * gemm.h, parallel.h, retain.h and tuning.h. Each begins with what the extension is for, and has an
 * example in C; in C++, plugin.hpp, attention.hpp and gemm.hpp have members for the same. This
 * header includes all of them but attention.h and gemm.h.
 *
 * Numbered requirements, OPDOCK-P-n for plugins and OPDOCK-H-n for the host, are next to what they
 * apply to; docs/reference/abi.md repeats them with the consequences of breaking one, and each has
 * a test.
 */
#ifndef OPDOCK_PLUGIN_H_
#define OPDOCK_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#include "opdock/formula_cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_ABI_MAJOR 0
#define OPDOCK_ABI_MINOR 5

/* The one function that a plugin exports. Its name contains the major version, so that a plugin of
 * another major is never called through the wrong declaration. */
#define OPDOCK_ENTRY opdock_plugin_v0
#define OPDOCK_ENTRY_NAME "opdock_plugin_v0"

/* The name of the data symbol that a plugin with device images also exports: the table of its
 * images (docs/reference/note.md). It is found through a symbol because tools that move segments
 * keep symbols right. */
#define OPDOCK_IMAGES_NAME "opdock_images_v0"

#if defined(__GNUC__)
#define OPDOCK_EXPORT __attribute__((visibility("default")))
#else
#define OPDOCK_EXPORT
#endif

/* True if `member` lies inside the struct_size that the writer of *ptr filled in. */
#define OPDOCK_HAS(ptr, type, member) \
  ((ptr)->struct_size >= offsetof(type, member) + sizeof((ptr)->member))

/* ------------------------------------------------------------------------------------ status */

typedef int32_t opdock_status;
#define OPDOCK_OK 0
#define OPDOCK_INVALID_ARGUMENT 1 /* an argument breaks the op's contract: the caller's fault */
#define OPDOCK_UNSUPPORTED 2      /* a legal argument that this implementation does not handle */
#define OPDOCK_OUT_OF_MEMORY 3    /* host or device memory */
#define OPDOCK_DEVICE_ERROR 4     /* a driver call failed; the device is still usable */
#define OPDOCK_DEVICE_LOST 5      /* a sticky error: the process must not use this device again */
#define OPDOCK_NOT_FOUND 6        /* no such op, plugin, kernel or symbol */
#define OPDOCK_INCOMPATIBLE 7     /* something exists but its verdict is not "usable" */
#define OPDOCK_CANCELLED 8        /* a hook of the program asked to stop */
#define OPDOCK_INTERNAL 9         /* a defect in the host or the plugin */
#define OPDOCK_IO_ERROR 10        /* a file operation failed, or the system refused it */

/* ------------------------------------------------------------------------------------ tensors */

/* Device types: DLPack's numbers. For CPU the index is 0. */
#define OPDOCK_CPU 1
#define OPDOCK_CUDA 2
#define OPDOCK_ROCM 10

typedef struct opdock_device {
  int32_t type;
  int32_t index;
} opdock_device;

/* dtype codes: DLPack's numbers. One element takes (bits * lanes + 7) / 8 bytes. */
#define OPDOCK_DTYPE_INT 0
#define OPDOCK_DTYPE_UINT 1
#define OPDOCK_DTYPE_FLOAT 2
#define OPDOCK_DTYPE_OPAQUE 3
#define OPDOCK_DTYPE_BFLOAT 4
#define OPDOCK_DTYPE_COMPLEX 5
#define OPDOCK_DTYPE_BOOL 6
#define OPDOCK_DTYPE_FLOAT8_E3M4 7
#define OPDOCK_DTYPE_FLOAT8_E4M3 8
#define OPDOCK_DTYPE_FLOAT8_E4M3B11FNUZ 9
#define OPDOCK_DTYPE_FLOAT8_E4M3FN 10
#define OPDOCK_DTYPE_FLOAT8_E4M3FNUZ 11
#define OPDOCK_DTYPE_FLOAT8_E5M2 12
#define OPDOCK_DTYPE_FLOAT8_E5M2FNUZ 13
#define OPDOCK_DTYPE_FLOAT8_E8M0FNU 14
#define OPDOCK_DTYPE_FLOAT6_E2M3FN 15
#define OPDOCK_DTYPE_FLOAT6_E3M2FN 16
#define OPDOCK_DTYPE_FLOAT4_E2M1FN 17

typedef struct opdock_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} opdock_dtype;

/* A strided view of memory that somebody else owns. Frozen; its layout is DLPack's DLTensor.
 * Element [i0, i1, …] lies at data + byte_offset + (Σ i_k * strides[k]) * bytes per element.
 *
 * OPDOCK-H-1  The host always sets strides (in elements), even where DLPack allows NULL; with
 *             ndim 0, shape and strides may be NULL.
 * OPDOCK-H-2  data may be NULL only if the tensor has no elements, or with OPDOCK_VALUE_NO_DATA. */
typedef struct opdock_tensor {
  void* data;
  opdock_device device;
  int32_t ndim;
  opdock_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} opdock_tensor;

/* The largest number of dimensions of a result, and of an argument that the host accepts. */
#define OPDOCK_MAX_NDIM 16

/* ------------------------------------------------------------------------------------- values */

/* The kinds of value that an opdock_value can hold. Tags are never reused. */
#define OPDOCK_TAG_NONE 0       /* an absent optional argument */
#define OPDOCK_TAG_BOOL 1       /* as.i64, 0 or 1 */
#define OPDOCK_TAG_INT 2        /* as.i64 */
#define OPDOCK_TAG_FLOAT 3      /* as.f64 */
#define OPDOCK_TAG_COMPLEX 4    /* as.c128: real part, imaginary part */
#define OPDOCK_TAG_STRING 5     /* as.str */
#define OPDOCK_TAG_DTYPE 6      /* as.dtype */
#define OPDOCK_TAG_DEVICE 7     /* as.device */
#define OPDOCK_TAG_TENSOR 8     /* as.tensor */
#define OPDOCK_TAG_OBJECT 9     /* as.object */
#define OPDOCK_TAG_STREAM 10    /* as.ptr: a CUstream or hipStream_t; NULL is the default stream */
#define OPDOCK_TAG_GENERATOR 11 /* as.generator */
#define OPDOCK_TAG_LIST \
  12 /* as.list; the elements carry their own tags and may be OPDOCK_TAG_NONE */

/* Flags of an opdock_value. */
#define OPDOCK_VALUE_READ_ONLY 1u /* a tensor: writing through it is an error */
#define OPDOCK_VALUE_NO_DATA 2u   /* a tensor: shape and dtype only, while planning */
#define OPDOCK_VALUE_OWNED 4u     /* a result that its holder frees with opdock_value_free */

struct opdock_value;

typedef struct opdock_string { /* frozen */
  const char* data;            /* UTF-8, not necessarily NUL-terminated */
  uint64_t size;               /* bytes */
} opdock_string;

typedef struct opdock_list { /* frozen */
  const struct opdock_value* data;
  uint64_t count;
} opdock_list;

/* A sequence of random 32-bit numbers, and the position of the next unused one. Number n of a seed
 * is word n % 4 of block n / 4 of Philox4x32-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011), whose key is the seed and whose counter is the
 * number of the block; opdock/philox.cuh computes it, also on the CPU.
 *
 * As an argument, or in the options of a call, a generator belongs to the caller. The host takes
 * the numbers that a plan asks for by advancing `offset` atomically, so several calls may share a
 * generator at once. opdock_call.generator, which an op reads, is a copy whose offset is the begin
 * of the range taken for that call. */
typedef struct opdock_generator {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t seed;
  uint64_t offset;
  /* NULL, or the address of a seed in the memory of the op's device, which is read when the kernel
   * runs, in place of `seed`. With it, a launch that was captured into a graph draws new numbers on
   * each replay. */
  const uint64_t* device_seed;
} opdock_generator;

/* State that outlives a call: an optimizer's state, an I/O handle, a communicator. An op makes it
 * and returns it with one reference; schemas name its type, "Object(aio_handle)".
 *
 * OPDOCK-P-9   release may be called on any thread, and in a child process forked after the object
 *              was made: there it frees memory and does not wait. The op decides what else a child
 *              may do with the object; an op refuses an object that cannot be used there
 *              (OPDOCK_UNSUPPORTED).
 * OPDOCK-H-9   The host passes an op only objects of the type that its schema names. */
typedef struct opdock_object {
  uint32_t struct_size;
  uint32_t version;    /* version of the type, set by its owner: how the memory is laid out */
  const char* type_id; /* as schemas name it; compared as text */
  /* [any thread]
   * Adds a reference. Atomic. */
  void (*retain)(struct opdock_object* self);
  /* [any thread]
   * Removes a reference. Atomic. The last release destroys the object and may block. */
  void (*release)(struct opdock_object* self);
  opdock_device device; /* where its memory lies */
} opdock_object;

typedef struct opdock_value { /* frozen, 16 bytes */
  uint32_t tag;
  uint32_t flags;
  union {
    int64_t i64;
    double f64;
    const double* c128;
    const opdock_string* str;
    opdock_dtype dtype;
    opdock_device device;
    const opdock_tensor* tensor;
    opdock_object* object;
    void* ptr;
    opdock_generator* generator;
    const opdock_list* list;
  } as;
} opdock_value;

/* ------------------------------------------------------------------------------- kernel launch */

typedef struct opdock_kernel opdock_kernel; /* owned by the host; valid until the process ends */

/* Attributes of a launch. */
#define OPDOCK_LAUNCH_COOPERATIVE 1u  /* all blocks resident at once; grid-wide barriers allowed */
#define OPDOCK_LAUNCH_PROGRAMMATIC 2u /* may start before the stream's last kernel has ended */

typedef struct opdock_launch {
  uint32_t struct_size;
  uint32_t flags;        /* OPDOCK_LAUNCH_… */
  uint32_t grid[3];      /* blocks; each at least 1 */
  uint32_t block[3];     /* threads; each at least 1 */
  uint32_t cluster[3];   /* blocks per cluster; all 0 for none */
  uint32_t shared_bytes; /* dynamic shared memory; the host raises the limit if needed */
  void* const* args;     /* one pointer per kernel parameter, read before launch returns */
  uint32_t num_args;
  uint32_t reserved;
} opdock_launch;

/* ------------------------------------------------------------------------------- the call, host */

struct opdock_host;

/* Facts about the device that an op runs on. Filled in once per device. */
typedef struct opdock_device_facts {
  uint32_t struct_size;
  int32_t type;        /* OPDOCK_CPU, OPDOCK_CUDA, OPDOCK_ROCM */
  uint32_t arch_major; /* compute capability, or gfx version; 0 on the CPU */
  uint32_t arch_minor;
  uint32_t warp_size;       /* 32 or 64; 1 on the CPU */
  uint32_t multiprocessors; /* on the CPU: usable cores, not opdock_options.num_threads */
  uint32_t max_threads_per_block;
  uint32_t max_shared_bytes; /* shared memory a block may have, static and dynamic */
  uint64_t l2_bytes;         /* 0 if unknown */
  uint64_t memory_bytes;
} opdock_device_facts;

/* Passed to plan, prepare and run. Members that a phase does not use are 0 or NULL.
 *
 * OPDOCK-H-3  While prepare and run execute on CUDA and ROCm, the stream's context is current; for
 *             the default stream (NULL) it is the device's primary one. Afterwards the previous
 *             context is current again. */
typedef struct opdock_call {
  uint32_t struct_size;
  uint32_t flags; /* none are defined */
  const struct opdock_host* host;
  void* host_data;                  /* private to the host: a plugin must not touch it */
  opdock_device device;             /* where the op runs */
  const opdock_device_facts* facts; /* of that device; valid until the process ends */
  void* stream;                     /* CUstream or hipStream_t; NULL on the CPU */
  void* workspace; /* run: workspace_bytes, aligned as planned; contents undefined */
  uint64_t workspace_bytes;
  const void* state; /* run: what plan wrote into opdock_plan.state, 8-aligned */
  /* run: where to draw the numbers that plan asked for; NULL if it asked for none */
  const opdock_generator* generator;
  char* error; /* see opdock_host.set_error; owned by the host */
  uint32_t error_size;
  uint32_t reserved;
} opdock_call;

typedef struct opdock_host {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t reserved;
  const char* version; /* of Opdock, such as "0.1.0" */

  /* [any thread]
   * Writes a line to the log of the runtime that makes the call. If call is NULL (in init, or on a
   * thread of the plugin's own), warnings and errors go to stderr, and other lines are dropped.
   * level: 0 debug, 1 info, 2 warning, 3 error. Copies the text. */
  void (*log)(const opdock_call* call, int32_t level, const char* message);

  /* [planning, preparing, running]
   * Records why a call failed: copies `message`, truncated to the size of the buffer, and returns
   * `status`, so that a plugin can write `return host->set_error(call, OPDOCK_INVALID_ARGUMENT,
   * "…")`. */
  opdock_status (*set_error)(const opdock_call* call, opdock_status status, const char* message);

  /* [preparing, running]
   * Gets kernel number `index` of opdock_plugin.kernels for call->device. The first request loads
   * the image that the host chose. If the plugin has no image for the device, the host takes this
   * one kernel from the cache or compiles it from the plugin's source. So the first request may
   * block and allocate; later ones are a single look-up. Ask only for kernels that are launched.
   * OPDOCK_NOT_FOUND: there is no such kernel. OPDOCK_INCOMPATIBLE: it does not compile.
   * OPDOCK_UNSUPPORTED: it is not ready, and the stream is being captured (opdock_prepare makes all
   * kernels of a plugin ready). */
  opdock_status (*kernel)(const opdock_call* call, uint32_t index, opdock_kernel** out);

  /* [running]
   * Launches `kernel` on call->stream. Never waits for the device. Returns errors of the launch
   * itself; an error while the kernel runs is reported by a later call. */
  opdock_status (*launch)(const opdock_call* call, opdock_kernel* kernel,
                          const opdock_launch* launch);

  /* [running, not while capturing]
   * Allocates more workspace, for an op with OPDOCK_OP_MAY_ALLOCATE that cannot know in plan how
   * much it needs. The memory is valid until run returns, and on the device for all work that run
   * has enqueued (stream order). OPDOCK_UNSUPPORTED while the stream is being captured. */
  opdock_status (*workspace)(const opdock_call* call, uint64_t bytes, uint64_t alignment,
                             void** out);

  /* [any thread]
   * Returns the address of a driver function (of libcuda or libamdhip64) that this table does not
   * wrap, or NULL if there is none. device_type: OPDOCK_CUDA or OPDOCK_ROCM. */
  void* (*driver_symbol)(int32_t device_type, const char* name);

  /* [any thread]
   * Returns the table of the extension that has this name and revision, such as OPDOCK_PARALLEL_2
   * (parallel.h), or NULL if this host has none. The table is valid until the process ends. */
  const void* (*get_extension)(const char* id);
} opdock_host;

/* --------------------------------------------------------------------------------- the plugin */

/* A tensor that plan asks the host to make. The host makes it contiguous: the last dimension has
 * stride 1, and each other dimension has the next one's stride times the next one's size. */
typedef struct opdock_output { /* frozen */
  opdock_dtype dtype;
  int32_t ndim;
  int64_t shape[OPDOCK_MAX_NDIM];
  uint64_t alignment; /* of its memory, in bytes: a power of two, at most 2^30, or 0 for any */
} opdock_output;

/* The answer of plan. The host passes it to plan zeroed, with struct_size, num_outputs and outputs
 * set. */
typedef struct opdock_plan {
  uint32_t struct_size;
  /* The number of fresh tensors of all results, in order: one for a Tensor, none or one for a
   * Tensor?, one for each element of a Tensor[]. It follows from the shape rules for these
   * arguments. */
  uint32_t num_outputs;
  opdock_output* outputs;       /* the host's array; the plugin fills in each element */
  uint64_t workspace_bytes;     /* on the op's device */
  uint64_t workspace_alignment; /* a power of two, or 0 for 256 */
  uint64_t random_numbers;      /* how many run draws; needs OPDOCK_OP_RANDOM */
  uint64_t state[8];            /* passed to run as call->state */
  uint32_t flags;               /* set by the host: OPDOCK_PLAN_… */
  uint32_t room;                /* of `outputs`, in elements; set by a caller of opdock_plan_call */
} opdock_plan;

/* Flags of a plan. */
#define OPDOCK_PLAN_OF_SHAPES 1u /* an argument had no data; opdock_run_planned plans again */

/* Flags of an op: what the host and frameworks may rely on. */
#define OPDOCK_OP_THREAD_SAFE 1u   /* two calls may run at once */
#define OPDOCK_OP_CAPTURE_SAFE 2u  /* after prepare, run may be captured into a graph */
#define OPDOCK_OP_IN_PLACE 4u      /* a result may be an argument's own tensor */
#define OPDOCK_OP_DETERMINISTIC 8u /* equal arguments and random numbers give equal bits */
#define OPDOCK_OP_MAY_BLOCK 16u    /* run may wait for something other than the device */
#define OPDOCK_OP_MAY_ALLOCATE 32u /* run may allocate */
#define OPDOCK_OP_HOST_SYNC 64u    /* run may wait for the device */
#define OPDOCK_OP_RANDOM 128u      /* plan may ask for random numbers */
#define OPDOCK_OP_RETAINS 256u     /* run may keep arguments, by opdock.retain */

/* Places where the tensors of a parameter can lie (opdock_op.arg_devices). */
#define OPDOCK_ON_OP_DEVICE 0 /* on the device that the op runs on */
#define OPDOCK_ON_CPU 1       /* in host memory */
#define OPDOCK_ON_ANY 2       /* anywhere */

/* Arguments come in the schema's order, defaults filled in: args[i] is the i-th parameter.
 *
 * OPDOCK-P-1  plan checks of every argument what the host has not checked, which is the schema and
 *             the op's tensor_rules, and touches no device; with OPDOCK_VALUE_NO_DATA set it reads
 *             no data either. It gives equal answers for equal arguments.
 * OPDOCK-P-2  prepare loads what run needs on call->device (tables, kernels whose attributes it
 *             sets), so that the first run may lie inside a graph capture. The host calls it once
 *             per op and device before the first run there; it may block. NULL if there is nothing
 *             to do. Kernels need no prepare: opdock_prepare makes them ready by itself.
 * OPDOCK-P-3  run writes every element of every fresh result, sets each result that is not a
 *             tensor, enqueues device work on call->stream only, and unless a flag says
 *             otherwise allocates nothing and waits for nothing.
 * OPDOCK-P-4  No exception leaves plan, prepare or run.
 * OPDOCK-P-10 plan asks for exactly the outputs that the op's shape rules give.
 * OPDOCK-H-4  The host has called prepare successfully before it calls run, and calls it once for
 *             each op and device unless it fails.
 * OPDOCK-H-5  The host runs one function at a time of an op that lacks OPDOCK_OP_THREAD_SAFE.
 * OPDOCK-H-6  Fresh results and written arguments (Tensor(a!)) share no memory with each other or
 *             with an argument, and none of their elements share an address; only an op with
 *             OPDOCK_OP_IN_PLACE may get an argument's own tensor as its result.
 * OPDOCK-H-7  The host reads and writes only the part of a struct that lies inside its struct_size.
 * OPDOCK-H-8  Within a major version the layout of a struct changes only by growth at its end. */
typedef struct opdock_op {
  uint32_t struct_size;
  uint32_t flags;                 /* OPDOCK_OP_… */
  const char* schema;             /* "name(Tensor x, …) -> Tensor" (docs/reference/abi.md) */
  const char* doc;                /* for help(): shapes, dtypes, what it computes; never NULL */
  uint32_t device_arg;            /* the parameter whose device decides where the op runs */
  uint32_t num_shape_rules;       /* one for each result with fresh tensors */
  const char* const* shape_rules; /* such as "like x": docs/reference/abi.md has the grammar */
  const uint8_t* arg_devices;     /* OPDOCK_ON_…, one for each parameter; NULL: all on the op's */
  /* Gradients of parameters, such as "x = dropout_backward(grads[0], results[1], p)" or "mask =
   * none: it holds no numbers"; docs/reference/abi.md has the grammar. */
  const char* const* gradients;
  uint32_t num_gradients;
  uint32_t num_tensor_rules; /* of tensor_rules, below */
  /* [any thread]
   * Checks the arguments and fills in `plan` (OPDOCK-P-1). May be called while the stream is being
   * captured. */
  opdock_status (*plan)(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                        opdock_plan* plan);
  /* [any thread, not while capturing]
   * Loads what run needs on the device (OPDOCK-P-2). */
  opdock_status (*prepare)(const opdock_call* call);
  /* [any thread]
   * Computes the results (OPDOCK-P-3). While the stream is being captured, the host calls run only
   * of an op with OPDOCK_OP_CAPTURE_SAFE. results: what the schema returns, in its order. The host
   * fills in tensors that are arguments, and fresh tensors (a Tensor? as a tensor or
   * OPDOCK_TAG_NONE, a Tensor[] as a list). Fresh tensors have the dtype and shape that plan asked
   * for and lie on the op's device, but may have other strides if the caller supplied them. All
   * other results are OPDOCK_TAG_NONE on entry, and run fills them in: numbers, bools, and objects,
   * each with a reference that the caller owns from then on, even if run then fails. */
  opdock_status (*run)(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                       opdock_value* results, uint32_t num_results);
  /* A formula of the results (docs/reference/formulas.md), from which the host makes the kernels on
   * every device. Then prepare and run are not called, and may be NULL. plan may be NULL too; else
   * it is called first, and may refuse arguments that the formula would take. NULL: none. */
  const char* formula;
  /* Rules about the tensors of a call, such as "rows x" or "like up gate", which the host checks
   * before it calls plan and, for results that are the caller's, before it calls run;
   * docs/reference/abi.md has the grammar. The rules of an op with a formula narrow what the
   * formula takes. */
  const char* const* tensor_rules;
  /* Names of tensor parameters, separated by ", ": then the results are the gradients of these, in
   * this order, each of its parameter's shape, and `formula` is that of the op whose gradients they
   * are. The first num_grads parameters are the gradients of that op's results, and its own follow.
   * A parameter that may be None has a result that may be None. NULL: the results are the
   * formula's.
   */
  const char* gradients_of;
  uint32_t num_grads;
  uint32_t reserved_of_gradients;
  /* [any thread]
   * Returns the formula's compiled code for CPUs, for the dtypes, ranks and options that the host
   * has written as `name`, or NULL if the plugin has none for them: then the host interprets the
   * formula. opdock-pack writes this function. NULL: the plugin has no such code. */
  opdock_formula_function (*cpu_code)(const char* name);
} opdock_op;

/* OPDOCK-P-5  The struct and all it points at stay valid and unchanged until the process ends.
 * OPDOCK-P-6  Name, version, ops, schemas, flags and everything else that the note states are equal
 *             to the note's.
 * OPDOCK-P-7  init may be called more than once, from any thread, and does the same each time; it
 *             is fast and touches no device. It is NULL if there is nothing to do. */
typedef struct opdock_plugin {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t num_ops;
  const char* name;
  const char* version; /* dotted numbers, compared number by number */
  const opdock_op* const* ops;
  const char* const* kernels; /* source-level names, such as "softmax<float>" */
  uint32_t num_kernels;
  uint32_t reserved;
  /* [any thread]
   * Called after the host has loaded the plugin and before it calls the plugin's ops (OPDOCK-P-7).
   * `host` is valid until the process ends. If init fails, the plugin is rejected with the text
   * that it has written to `error`. */
  opdock_status (*init)(const opdock_host* host, char* error, uint32_t error_size);
} opdock_plugin;

/* [any thread]
 * The entry point. `opdock-pack` writes both its definition and the note from plugin.toml, so that
 * the two cannot differ. OPDOCK-P-8: calling it has no side effect. */
OPDOCK_EXPORT const opdock_plugin* OPDOCK_ENTRY(void);

/* Changes
 *   0.1  First draft.
 *   0.2  opdock_plan.flags.
 *   0.3  Results are values: run takes opdock_value, not tensors. Fresh results are contiguous:
 *        opdock_output has no strides, but an alignment. Objects are typed. opdock.retain/1. The
 *        host takes ranges of random numbers. Arguments may lie on other devices. Gradients are
 *        formulas; backward was removed. Kernels are requested by index. log and parallel_for take
 *        the call (opdock.parallel/2). Tags are OPDOCK_TAG_…. OPDOCK_IO_ERROR. A host loads only
 *        its own minor of major 0. The struct_size of a launch must include num_args, that of an
 *        object release. Removed: OPDOCK_CALL_…, opdock_generator.device_offset. Note version 2:
 *        the image table is found through the dynamic symbol opdock_images_v0. opdock.tuning/1.
 *        Parameters may share a gradient ("x & y"). opdock.gemm/1 (gemm.h). opdock.cancel/1.
 *        Extensions are in headers of their own: cancel.h, parallel.h, retain.h and tuning.h, which
 *        this header includes because it held them before, and gemm.h.
 *   0.4  opdock_op.formula.
 *   0.5  opdock_op.tensor_rules, gradients_of, num_grads and cpu_code. opdock.attention/1
 *        (attention.h). */

#ifdef __cplusplus
}
#endif

/* The extensions' headers use the declarations above, so they are included after these. */
#include "opdock/cancel.h"
#include "opdock/parallel.h"
#include "opdock/retain.h"
#include "opdock/tuning.h"

#endif /* OPDOCK_PLUGIN_H_ */
