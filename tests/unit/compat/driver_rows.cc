// Verdict rows for PTX, and for which toolkit needs which driver. Sources: NVIDIA, "CUDA C++
// Programming Guide", PTX compatibility; "CUDA Compatibility", minor version compatibility.
// SPDX-License-Identifier: Apache-2.0
#include "table.h"

namespace opdock::test {

// clang-format off: one row per line
INSTANTIATE_TEST_SUITE_P(
    Ptx, VerdictTable,
    testing::Values(
        ROW("cuda compute_50@12.4", "driver=12.4 sm_61", "usable compute_50 ptx-only"),
        ROW("cuda compute_61@12.4", "driver=12.4 sm_61", "usable compute_61 ptx-only"),
        ROW("cuda compute_61@12.4", "driver=12.4 sm_60", "rejected arch-mismatch"),
        ROW("cuda compute_70@12.4", "driver=12.4 sm_75", "usable compute_70 ptx-only"),
        ROW("cuda compute_75@12.4", "driver=12.4 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@12.4", "driver=12.4 sm_70", "rejected arch-mismatch"),
        ROW("cuda compute_80@12.4", "driver=12.4 sm_90", "usable compute_80 ptx-only"),
        ROW("cuda compute_86@12.4", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda compute_89@12.4", "driver=12.4 sm_90", "usable compute_89 ptx-only"),
        ROW("cuda compute_90@12.4", "driver=12.4 sm_89", "rejected arch-mismatch"),
        ROW("cuda compute_90@12.4", "driver=12.9 sm_120", "usable compute_90 ptx-only"),
        ROW("cuda compute_100@12.8", "driver=12.9 sm_120", "usable compute_100 ptx-only"),
        ROW("cuda compute_120@12.8", "driver=12.9 sm_103", "rejected arch-mismatch"),
        ROW("cuda compute_52@12.4", "driver=13.0 sm_121", "usable compute_52 ptx-only"),
        ROW("cuda compute_90a@12.4", "driver=12.4 sm_90", "usable compute_90a ptx-only"),
        ROW("cuda compute_90a@12.4", "driver=12.9 sm_100", "rejected arch-specific"),
        ROW("cuda compute_90a@12.4", "driver=12.4 sm_89", "rejected arch-specific"),
        ROW("cuda compute_100a@12.9", "driver=12.9 sm_103", "rejected arch-specific"),
        ROW("cuda compute_100f@12.9", "driver=12.9 sm_100", "usable compute_100f ptx-only"),
        ROW("cuda compute_100f@12.9", "driver=12.9 sm_103", "usable compute_100f ptx-only"),
        ROW("cuda compute_100f@12.9", "driver=12.9 sm_120", "rejected arch-specific"),
        ROW("cuda compute_103f@12.9", "driver=12.9 sm_100", "rejected arch-specific"),
        ROW("cuda compute_120f@12.9", "driver=13.0 sm_121", "usable compute_120f ptx-only"),
        ROW("cuda compute_121f@13.0", "driver=13.0 sm_120", "rejected arch-specific"),
        // a cubin before PTX; of several PTX images, the highest that fits
        ROW("cuda compute_86@12.4 sm_80@12.4", "driver=12.4 sm_86", "usable sm_80"),
        ROW("cuda compute_70@12.4 compute_80@12.4 compute_90@12.4", "driver=12.4 sm_86", "usable compute_80 ptx-only"),
        ROW("cuda compute_90@12.4 compute_90a@12.4", "driver=12.4 sm_90", "usable compute_90a ptx-only"),
        ROW("cuda sm_70@12.4 compute_70@12.4", "driver=12.4 sm_80", "usable compute_70 ptx-only"),
        ROW("cuda sm_90@12.4 compute_90@12.4", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda sm_90a@12.4 compute_90@12.4", "driver=12.9 sm_100", "usable compute_90 ptx-only"),
        ROW("cuda compute_x@12.4", "driver=12.4 sm_90", "rejected arch-mismatch")));

INSTANTIATE_TEST_SUITE_P(
    Toolkit, VerdictTable,
    testing::Values(
        // PTX needs a driver of the toolkit's version, minor included
        ROW("cuda compute_75@11.0", "driver=11.0 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@11.1", "driver=11.0 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@11.8", "driver=11.4 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@11.4", "driver=11.8 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@12.0", "driver=11.8 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@12.2", "driver=12.1 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@12.2", "driver=12.2 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@12.9", "driver=12.8 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@12.9.86", "driver=12.9 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@13.0", "driver=12.9 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@12.9", "driver=13.0 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@13.1", "driver=13.0 sm_80", "rejected driver-too-old"),
        ROW("cuda compute_75@13.0", "driver=13.1 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_75@10.2", "driver=11.0 sm_80", "usable compute_75 ptx-only"),
        // since CUDA 11, cubins need only a driver of the toolkit's major version
        ROW("cuda sm_80@11.0", "driver=11.0 sm_80", "usable sm_80"),
        ROW("cuda sm_80@11.8", "driver=11.0 sm_80", "usable sm_80"),
        ROW("cuda sm_80@12.0", "driver=11.8 sm_80", "rejected driver-too-old"),
        ROW("cuda sm_80@11.8", "driver=12.0 sm_80", "usable sm_80"),
        ROW("cuda sm_80@12.9", "driver=12.0 sm_80", "usable sm_80"),
        ROW("cuda sm_80@12.9.86", "driver=12.0 sm_80", "usable sm_80"),
        ROW("cuda sm_80@13.0", "driver=12.9 sm_80", "rejected driver-too-old"),
        ROW("cuda sm_80@13.0", "driver=11.4 sm_80", "rejected driver-too-old"),
        ROW("cuda sm_80@12.9", "driver=13.0 sm_80", "usable sm_80"),
        ROW("cuda sm_80@13.1", "driver=13.0 sm_80", "usable sm_80"),
        ROW("cuda sm_90@11.8", "driver=13.0 sm_90", "usable sm_90"),
        ROW("cuda sm_61@10.2", "driver=11.0 sm_61", "usable sm_61"),
        ROW("cuda sm_61@10.2", "driver=10.1 sm_61", "rejected driver-too-old"),
        ROW("cuda sm_61@10.1", "driver=10.2 sm_61", "usable sm_61"),
        ROW("cuda sm_61@9.2", "driver=10.1 sm_61", "usable sm_61"),
        ROW("cuda sm_100@13.0", "driver=12.9 sm_100", "rejected driver-too-old"),
        // if the architecture does not fit, the driver is not to blame
        ROW("cuda sm_90@13.0", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda sm_80@13.0 sm_90@13.0", "driver=12.4 sm_80", "rejected arch-mismatch driver-too-old"),
        ROW("cuda sm_80@13.0 compute_80@12.9", "driver=12.4 sm_80", "rejected driver-too-old"),
        // one image that works is enough
        ROW("cuda sm_80@13.0 compute_80@12.4", "driver=12.4 sm_80", "usable compute_80 ptx-only"),
        ROW("cuda sm_80@12.9 compute_80@12.9", "driver=12.4 sm_80", "usable sm_80"),
        ROW("cuda sm_80@13.0 sm_80@12.9", "driver=12.4 sm_86", "usable sm_80"),
        // unknown toolkits
        ROW("cuda compute_80", "driver=12.4 sm_80", "undecided compute_80 toolkit-unknown"),
        ROW("cuda compute_80", "driver=13.0 sm_120", "undecided compute_80 toolkit-unknown"),
        ROW("cuda compute_90", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda sm_80", "driver=12.4 sm_80", "undecided sm_80 toolkit-unknown"),
        ROW("cuda compute_80 sm_80", "driver=12.4 sm_80", "undecided sm_80 toolkit-unknown"),
        ROW("cuda compute_80 sm_80@12.4", "driver=12.4 sm_80", "usable sm_80"),
        ROW("cuda compute_80 compute_75@12.4", "driver=12.4 sm_80", "usable compute_75 ptx-only"),
        ROW("cuda compute_80 sm_90@12.4", "driver=12.4 sm_80", "undecided compute_80 toolkit-unknown"),
        ROW("cuda sm_80@12.4", "sm_80", "undecided sm_80 toolkit-unknown"),
        ROW("cuda sm_80@12.4 cpu", "sm_80", "usable sm_80 toolkit-unknown")));

// No GPU, no driver, or no images.
INSTANTIATE_TEST_SUITE_P(
    Absent, VerdictTable,
    testing::Values(
        ROW("cpu", "", "usable"),
        ROW("cpu", "driver=12.4 sm_80", "usable"),
        ROW("cuda sm_80@12.9", "", "rejected no-driver"),
        ROW("cuda compute_80@12.9", "", "rejected no-driver"),
        ROW("cuda sm_80@12.9", "driver=12.4", "rejected no-gpu"),
        ROW("cuda sm_80@13.0", "driver=12.4", "rejected no-gpu"),
        ROW("cpu cuda sm_80@12.9", "", "usable no-driver"),
        ROW("cpu cuda sm_80@12.9", "driver=12.4", "usable no-gpu"),
        ROW("cuda cpu sm_80@12.9", "driver=12.4 sm_90", "usable arch-mismatch"),
        ROW("cpu cuda sm_80@13.0", "driver=12.4 sm_80", "usable driver-too-old"),
        ROW("cpu cuda sm_80@12.9", "driver=12.4 sm_80", "usable sm_80"),
        ROW("cpu cuda compute_80@12.4", "driver=12.4 sm_80", "usable compute_80 ptx-only"),
        ROW("rocm gfx90a@6.2", "", "rejected no-driver"),
        ROW("rocm gfx90a@6.2", "rocm=6.2", "rejected no-gpu"),
        ROW("rocm gfx90a@6.2", "driver=12.4 sm_80", "rejected no-driver"),
        ROW("cuda sm_80@12.9", "rocm=6.2 gfx90a", "rejected no-driver"),
        ROW("cuda rocm sm_80@12.9 gfx90a@6.2", "", "rejected no-driver"),
        ROW("cuda rocm sm_80@12.9 gfx90a@6.2", "driver=12.4 sm_80", "usable sm_80 no-driver"),
        ROW("cuda rocm sm_80@12.9 gfx90a@6.2", "rocm=6.2 gfx90a", "usable gfx90a no-driver"),
        ROW("cpu cuda rocm sm_80@12.9 gfx90a@6.2", "", "usable no-driver"),
        // images for one vendor only, and none at all
        ROW("cuda rocm sm_80@12.9", "rocm=6.2 gfx90a", "rejected no-driver no-images"),
        ROW("cuda rocm gfx90a@6.2", "driver=12.4 sm_80", "rejected no-driver no-images"),
        ROW("cpu cuda gfx90a@6.2", "driver=12.4 sm_80", "usable no-images"),
        ROW("cuda", "driver=12.4 sm_80", "usable no-kernels"),
        ROW("cuda", "", "rejected no-driver"),
        ROW("cpu cuda", "driver=12.4 sm_80", "usable no-kernels"),
        // source that was not compiled
        ROW("cuda source", "driver=12.4 sm_80", "rejected source-only"),
        ROW("cuda source", "", "rejected no-driver"),
        ROW("cpu cuda source", "driver=12.4 sm_80", "usable source-only"),
        ROW("cuda source sm_80@12.9", "driver=12.4 sm_80", "usable sm_80"),
        ROW("cuda source sm_80@12.9", "driver=12.4 sm_90", "rejected arch-mismatch source-only"),
        ROW("cuda source sm_90a@12.9", "driver=12.4 sm_80", "rejected arch-specific source-only"),
        ROW("cuda source sm_80@13.0", "driver=12.4 sm_80", "rejected driver-too-old source-only"),
        ROW("cuda source compute_80", "driver=12.4 sm_80", "undecided compute_80 toolkit-unknown"),
        ROW("cuda rocm source", "rocm=6.2 gfx90a", "rejected no-driver source-only"),
        ROW("rocm rocm-source", "rocm=6.2 gfx90a", "rejected source-only"),
        ROW("cuda rocm source rocm-source", "rocm=6.2 gfx90a driver=12.4 sm_80", "rejected source-only")));

// Several GPUs.
INSTANTIATE_TEST_SUITE_P(
    Several, VerdictTable,
    testing::Values(
        ROW("cuda sm_80@12.9", "driver=12.4 sm_80 sm_80 sm_80 sm_80", "usable sm_80"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_90 sm_90", "rejected arch-mismatch"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_80 sm_90", "usable sm_80 arch-mismatch"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_90 sm_80", "usable sm_80 arch-mismatch"),
        ROW("cuda sm_80@12.9 sm_90@12.9", "driver=12.4 sm_80 sm_90", "usable sm_80"),
        ROW("cuda sm_80@12.9 compute_80@12.4", "driver=12.4 sm_80 sm_90", "usable sm_80 ptx-only"),
        ROW("cuda sm_80@12.9", "driver=12.4 order? sm_80 sm_90", "undecided arch-mismatch gpu-order"),
        ROW("cuda sm_80@12.9 sm_90@12.9", "driver=12.4 order? sm_80 sm_90", "usable sm_80"),
        ROW("cuda sm_80@12.9", "driver=12.4 order? sm_80 sm_86", "usable sm_80"),
        ROW("cuda sm_75@12.9", "driver=12.4 order? sm_80 sm_90", "rejected arch-mismatch"),
        ROW("cuda sm_90@12.9", "driver=12.4 order? sm_75 sm_90 sm_90", "undecided arch-mismatch gpu-order"),
        ROW("cpu cuda sm_80@12.9", "driver=12.4 order? sm_80 sm_90", "usable arch-mismatch gpu-order"),
        ROW("cuda sm_80@12.9 compute_80@12.4", "driver=12.4 order? sm_80 sm_90", "usable sm_80 ptx-only"),
        ROW("cuda compute_80 sm_90@12.4", "driver=12.4 order? sm_80 sm_90", "undecided toolkit-unknown gpu-order"),
        ROW("cuda rocm sm_80@12.9 gfx90a@6.2", "driver=12.4 sm_80 rocm=6.2 gfx90a", "usable sm_80"),
        ROW("cuda rocm sm_80@12.9 gfx90a@6.2", "driver=12.4 sm_90 rocm=6.2 gfx90a", "usable gfx90a arch-mismatch"),
        ROW("cuda rocm sm_80@12.9 gfx90a@6.2", "driver=12.4 sm_90 rocm=6.2 gfx1100", "rejected arch-mismatch")));
// clang-format on

}  // namespace opdock::test
