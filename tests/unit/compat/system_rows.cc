// Verdict rows for the CPU, the C library, other libraries, and what the file's reader reported.
// Sources: "System V Application Binary Interface, AMD64", micro-architecture levels; the GNU C
// Library's and libstdc++'s symbol versioning; glibc's release notes (GLIBC_ABI_DT_RELR came with
// 2.36).
// SPDX-License-Identifier: Apache-2.0
#include "table.h"

namespace opdock::test {

// clang-format off: one row per line
INSTANTIATE_TEST_SUITE_P(
    Cpu, VerdictTable,
    testing::Values(
        ROW("cpu level=1", "level=1", "usable"),
        ROW("cpu level=2", "level=1", "rejected cpu-level"),
        ROW("cpu level=3", "level=1", "rejected cpu-level"),
        ROW("cpu level=4", "level=1", "rejected cpu-level"),
        ROW("cpu level=1", "level=2", "usable"),
        ROW("cpu level=2", "level=2", "usable"),
        ROW("cpu level=3", "level=2", "rejected cpu-level"),
        ROW("cpu level=4", "level=3", "rejected cpu-level"),
        ROW("cpu level=3", "level=3", "usable"),
        ROW("cpu level=3", "level=4", "usable"),
        ROW("cpu level=4", "level=4", "usable"),
        ROW("cpu arch=aarch64 machine=183 level=0", "aarch64", "usable"),
        ROW("cpu", "aarch64", "rejected elf-machine"),
        ROW("cpu arch=aarch64 machine=183 level=0", "", "rejected elf-machine"),
        ROW("cpu arch=aarch64", "", "rejected cpu-arch"),
        ROW("cpu machine=183", "", "rejected elf-machine"),
        ROW("cpu machine=3", "", "rejected elf-machine"),
        ROW("cpu machine=243 arch=riscv64", "aarch64", "rejected elf-machine"),
        // the level and C library of a plugin for another machine are not reported
        ROW("cpu arch=aarch64 machine=183 level=0 absent:GLIBC_2.99", "", "rejected elf-machine"),
        ROW("cpu arch=aarch64 machine=183 level=0 absent:GLIBC_2.99", "aarch64", "rejected glibc-version")));

INSTANTIATE_TEST_SUITE_P(
    Libraries, VerdictTable,
    testing::Values(
        ROW("cpu torch>=2.11", "torch=2.11", "usable"),
        ROW("cpu torch>=2.11", "torch=2.13.0", "usable"),
        ROW("cpu torch>=2.11", "torch=2.10.1", "rejected library-range"),
        ROW("cpu torch>=2.11", "torch=2.9", "rejected library-range"),
        ROW("cpu torch>=2.11", "", "undecided library-unknown"),
        ROW("cpu torch>=2.11,<3", "torch=2.99", "usable"),
        ROW("cpu torch>=2.11,<3", "torch=3.0", "rejected library-range"),
        ROW("cpu torch==2.13.*", "torch=2.13.1", "usable"),
        ROW("cpu torch==2.13.*", "torch=2.14", "rejected library-range"),
        ROW("cpu torch==2.13", "torch=2.13.0", "usable"),
        ROW("cpu torch==2.13", "torch=2.13.1", "rejected library-range"),
        ROW("cpu torch!=2.12.*,>=2.11", "torch=2.12.1", "rejected library-range"),
        ROW("cpu torch!=2.12.*,>=2.11", "torch=2.13", "usable"),
        ROW("cpu torch>2.11", "torch=2.11.0", "rejected library-range"),
        ROW("cpu torch<=2.11", "torch=2.11.0", "usable"),
        ROW("cpu cudart", "cudart=12.9", "usable"),
        ROW("cpu cudart", "", "undecided library-unknown"),
        ROW("cpu cudart>=12,<13", "cudart=13.0", "rejected library-range"),
        ROW("cpu python>=3.10", "python=3.9.2", "rejected library-range"),
        ROW("cpu python>=3.10", "python=3.14", "usable"),
        ROW("cpu rocm>=6", "rocm=6.2", "usable"),
        ROW("cpu rocm>=6", "rocm=5.7", "rejected library-range"),
        ROW("cpu rocm>=6", "", "undecided library-unknown"),
        ROW("cpu torch>=2.11 python>=3.10", "torch=2.9 python=3.9", "rejected library-range"),
        ROW("cpu torch>=2.11 python>=3.10", "torch=2.9", "rejected library-range library-unknown"),
        ROW("cpu torch>>2", "torch=2.9", "rejected note-field"),
        ROW("cpu torch>=x", "torch=2.9", "rejected note-field"),
        ROW("cpu torch>=2,", "torch=2.9", "rejected note-field"),
        ROW("cpu torch>=2.*", "torch=2.9", "rejected note-field"),
        // libraries that the loader would not find; a declared one is checked by its version range
        ROW("cpu missing=libcufft.so.11", "", "rejected library-missing"),
        ROW("cpu missing=liba.so missing=libb.so", "", "rejected library-missing"),
        ROW("cpu missing=libtorch_cpu.so", "torch=2.13", "rejected library-missing"),
        ROW("cpu torch>=2.11 missing=libtorch_cpu.so missing=libc10.so", "torch=2.13", "usable"),
        ROW("cpu torch>=2.11 missing=libtorch_cpu.so", "", "undecided library-unknown"),
        ROW("cpu torch>=2.11 missing=libtorch_cpu.so missing=libz.so.9", "torch=2.13", "rejected library-missing"),
        // an unknown library outweighs a usable device
        ROW("cuda sm_80@12.9 torch>=2.11", "driver=12.4 sm_80", "undecided sm_80 library-unknown"),
        ROW("cuda sm_80@12.9 torch>=2.11", "driver=12.4 sm_90", "rejected arch-mismatch library-unknown")));

INSTANTIATE_TEST_SUITE_P(
    File, VerdictTable,
    testing::Values(
        ROW("cpu execstack", "", "rejected executable-stack"),
        ROW("cpu static-tls", "", "usable static-tls"),
        ROW("cpu unique", "", "usable unique-symbols"),
        ROW("cpu unresolved", "", "undecided symbols-unresolved"),
        ROW("cpu symbol=PyList_New symbol=PyLong_Type", "", "undecided python-needed"),
        ROW("cpu symbol=PyList_New symbol=zlibVersion", "", "undecided python-needed symbols-unresolved"),
        ROW("cpu refused=libz.so.1", "", "rejected library-refused"),
        ROW("cpu no-open", "", "rejected no-open"),
        ROW("cpu elsewhere=libz.so.1", "", "undecided library-elsewhere"),
        ROW("cpu torch>=2.11 elsewhere=libc10.so", "torch=2.13", "usable"),
        ROW("cpu unknown=libX11.so.6", "", "undecided library-unknown"),
        ROW("cpu absent:GLIBC_2.99", "", "rejected glibc-version"),
        ROW("cpu absent:GLIBC_ABI_GNU2_TLS", "", "rejected glibc-version"),
        ROW("cpu absent:GCC_14.0.0 absent:GLIBCXX_3.4.32 absent:GLIBC_2.38", "", "rejected symbol-version libstdcxx-version glibc-version"),
        ROW("cpu absent:GLIBCXX_3.4.99 absent:CXXABI_1.3.99", "", "rejected libstdcxx-version"),
        ROW("cpu absent:ZLIB_9.9 absent:GLIBC_2.99", "", "rejected glibc-version symbol-version"),
        ROW("cpu unmarked", "", "rejected elf-malformed"),
        ROW("cpu property=3", "level=2", "rejected cpu-level"),
        // the static TLS that is left is known to within 64 bytes; if unknown, glibc's default is
        // assumed
        ROW("cpu static-tls tls=100 tls-left=1680", "", "usable static-tls"),
        ROW("cpu tls=1616 tls-left=1680", "", "usable static-tls"),
        ROW("cpu tls=1617 tls-left=1680", "", "undecided static-tls-close"),
        ROW("cpu tls=1744 tls-left=1680", "", "undecided static-tls-close"),
        ROW("cpu tls=1745 tls-left=1680", "", "rejected static-tls-full"),
        ROW("cpu tls=8 tls-left=-40", "", "undecided static-tls-close"),
        ROW("cpu tls=8 tls-left=-80", "", "rejected static-tls-full"),
        ROW("cpu tls=8 tls-left=1680 tls-align=128", "", "rejected static-tls-full"),
        ROW("cpu tls=640", "", "usable static-tls"),
        ROW("cpu tls=641", "", "undecided static-tls-close"),
        ROW("cpu tls=2689", "", "rejected static-tls-full"),
        ROW("cpu unresolved execstack", "", "rejected executable-stack symbols-unresolved"),
        ROW("cpu abi=0.5", "", "usable"),
        ROW("cpu abi=0.1", "", "rejected abi-major"),
        ROW("cpu abi=0.99", "", "rejected abi-major"),
        ROW("cpu abi=1.0", "", "rejected abi-major"),
        ROW("cpu abi=7.3", "", "rejected abi-major"),
        ROW("no-note", "", "rejected note-missing"),
        ROW("no-note sm_80@12.9", "driver=12.4 sm_80", "rejected sm_80 note-missing"),
        ROW("no-note compute_80", "driver=12.4 sm_80", "rejected compute_80 note-missing toolkit-unknown"),
        ROW("no-note sm_80@12.9", "", "rejected note-missing no-driver"),
        ROW("not-elf =not-elf", "", "rejected not-elf"),
        ROW("no-note =elf-truncated", "", "rejected elf-truncated"),
        ROW("no-note =elf-malformed", "", "rejected elf-malformed"),
        ROW("no-note =elf-type", "", "rejected elf-type"),
        ROW("no-note machine=183", "", "rejected elf-machine"),
        ROW("no-note =note-missing machine=183", "", "rejected elf-machine"),
        ROW("no-note =elf-class machine=3", "", "rejected elf-class"),
        ROW("no-note =elf-machine machine=190", "", "rejected elf-machine"),
        ROW("no-note =elf-truncated machine=0", "", "rejected elf-truncated"),
        ROW("no-note machine=0", "", "rejected elf-machine"),
        ROW("cpu machine=183 missing=libx.so execstack static-tls unresolved", "", "rejected elf-machine"),
        ROW("no-note =note-missing", "", "rejected note-missing"),
        ROW("no-note =note-json", "", "rejected note-json"),
        ROW("no-note =note-version", "", "rejected note-version"),
        ROW("no-note =note-not-in-segment", "", "rejected note-not-in-segment"),
        ROW("cpu =claim-arch", "", "rejected claim-arch"),
        ROW("cpu =claim-machine machine=183", "", "rejected elf-machine claim-machine"),
        ROW("cpu =entry-missing", "", "rejected entry-missing"),
        ROW("cpu =elf-machine machine=183", "", "rejected elf-machine"),
        ROW("cpu =duplicate-plugin", "", "usable duplicate-plugin"),
        ROW("cpu =superseded", "", "usable superseded"),
        ROW("cpu =untrusted-owner", "", "rejected untrusted-owner"),
        ROW("cpu =untrusted-owner =untrusted-writable", "", "rejected untrusted-owner untrusted-writable"),
        ROW("cpu =executable-stack execstack", "", "rejected executable-stack"),
        // many problems at once
        ROW("cuda abi=2.0 level=4 absent:GLIBC_2.99 absent:GLIBCXX_3.4.99 torch>=9 execstack sm_90@13.0", "driver=12.4 sm_80 torch=2.13",
            "rejected abi-major cpu-level glibc-version libstdcxx-version library-range executable-stack arch-mismatch"),
        ROW("cpu cuda abi=2.0 level=4 sm_80@13.0 source", "driver=12.4 sm_80",
            "rejected abi-major cpu-level driver-too-old source-only")));
// clang-format on

}  // namespace opdock::test
