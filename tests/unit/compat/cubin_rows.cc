// Verdict rows for cubins on NVIDIA GPUs. Source: NVIDIA, "CUDA C++ Programming Guide", binary
// compatibility: a cubin runs on its own compute capability and on later minors of the same major.
// SPDX-License-Identifier: Apache-2.0
#include "table.h"

namespace opdock::test {

// clang-format off: one row per line
INSTANTIATE_TEST_SUITE_P(
    Cubin, VerdictTable,
    testing::Values(
        // Maxwell and Pascal
        ROW("cuda sm_50@12.9", "driver=12.4 sm_50", "usable sm_50"),
        ROW("cuda sm_50@12.9", "driver=12.4 sm_52", "usable sm_50"),
        ROW("cuda sm_52@12.9", "driver=12.4 sm_50", "rejected arch-mismatch"),
        ROW("cuda sm_52@12.9", "driver=12.4 sm_60", "rejected arch-mismatch"),
        ROW("cuda sm_60@12.9", "driver=12.4 sm_60", "usable sm_60"),
        ROW("cuda sm_60@12.9", "driver=12.4 sm_61", "usable sm_60"),
        ROW("cuda sm_61@12.9", "driver=12.4 sm_60", "rejected arch-mismatch"),
        ROW("cuda sm_61@12.9", "driver=12.4 sm_61", "usable sm_61"),
        // Volta and Turing are one major
        ROW("cuda sm_70@12.9", "driver=12.4 sm_70", "usable sm_70"),
        ROW("cuda sm_70@12.9", "driver=12.4 sm_75", "usable sm_70"),
        ROW("cuda sm_75@12.9", "driver=12.4 sm_70", "rejected arch-mismatch"),
        ROW("cuda sm_75@12.9", "driver=12.4 sm_75", "usable sm_75"),
        ROW("cuda sm_60@12.9 sm_61@12.9", "driver=12.4 sm_70", "rejected arch-mismatch"),
        ROW("cuda sm_75@12.9", "driver=12.4 sm_80", "rejected arch-mismatch"),
        // Ampere and Ada are one major
        ROW("cuda sm_80@12.9", "driver=12.4 sm_80", "usable sm_80"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_86", "usable sm_80"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_89", "usable sm_80"),
        ROW("cuda sm_86@12.9", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda sm_86@12.9", "driver=12.4 sm_86", "usable sm_86"),
        ROW("cuda sm_86@12.9", "driver=12.4 sm_89", "usable sm_86"),
        ROW("cuda sm_89@12.9", "driver=12.4 sm_86", "rejected arch-mismatch"),
        ROW("cuda sm_89@12.9", "driver=12.4 sm_89", "usable sm_89"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_75", "rejected arch-mismatch"),
        ROW("cuda sm_89@12.9", "driver=12.4 sm_90", "rejected arch-mismatch"),
        // Hopper
        ROW("cuda sm_90@12.9", "driver=12.4 sm_90", "usable sm_90"),
        ROW("cuda sm_90@12.9", "driver=12.4 sm_89", "rejected arch-mismatch"),
        ROW("cuda sm_90@12.9", "driver=12.9 sm_100", "rejected arch-mismatch"),
        ROW("cuda sm_80@12.9", "driver=12.4 sm_90", "rejected arch-mismatch"),
        // Blackwell: 10.x and 12.x are different majors
        ROW("cuda sm_100@12.9", "driver=12.9 sm_100", "usable sm_100"),
        ROW("cuda sm_100@12.9", "driver=12.9 sm_103", "usable sm_100"),
        ROW("cuda sm_103@12.9", "driver=12.9 sm_100", "rejected arch-mismatch"),
        ROW("cuda sm_103@12.9", "driver=12.9 sm_103", "usable sm_103"),
        ROW("cuda sm_100@12.9", "driver=12.9 sm_120", "rejected arch-mismatch"),
        ROW("cuda sm_120@12.9", "driver=12.9 sm_100", "rejected arch-mismatch"),
        ROW("cuda sm_120@12.9", "driver=12.9 sm_120", "usable sm_120"),
        ROW("cuda sm_120@12.9", "driver=13.0 sm_121", "usable sm_120"),
        ROW("cuda sm_121@13.0", "driver=13.0 sm_120", "rejected arch-mismatch"),
        ROW("cuda sm_121@13.0", "driver=13.0 sm_121", "usable sm_121"),
        ROW("cuda sm_90@12.9", "driver=13.0 sm_120", "rejected arch-mismatch"),
        // an architecture that does not exist yet follows the same rule
        ROW("cuda sm_130@14.0", "driver=14.1 sm_130", "usable sm_130"),
        ROW("cuda sm_130@14.0", "driver=14.1 sm_135", "usable sm_130"),
        ROW("cuda sm_130@14.0", "driver=14.1 sm_120", "rejected arch-mismatch"),
        // the best of several images
        ROW("cuda sm_80@12.9 sm_86@12.9 sm_89@12.9", "driver=12.4 sm_86", "usable sm_86"),
        ROW("cuda sm_80@12.9 sm_86@12.9 sm_89@12.9", "driver=12.4 sm_80", "usable sm_80"),
        ROW("cuda sm_80@12.9 sm_86@12.9", "driver=12.4 sm_89", "usable sm_86"),
        ROW("cuda sm_86@12.9 sm_80@12.9", "driver=12.4 sm_89", "usable sm_86"),
        ROW("cuda sm_75@12.9 sm_80@12.9 sm_90@12.9 sm_100@12.9", "driver=12.4 sm_90", "usable sm_90"),
        ROW("cuda sm_75@12.9 sm_80@12.9 sm_90@12.9 sm_100@12.9", "driver=12.4 sm_61", "rejected arch-mismatch"),
        ROW("cuda compute_86@12.0 sm_80@12.9", "driver=12.4 sm_86", "usable sm_80"),
        // invalid names
        ROW("cuda sm_x@12.9", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda sm_80b@12.9", "driver=12.4 sm_80", "rejected arch-mismatch"),
        ROW("cuda sm_@12.9 sm_80@12.9", "driver=12.4 sm_80", "usable sm_80")));

// With the suffix `a`, a cubin runs on exactly that architecture; with the suffix `f`, on its
// family: the same major, from its minor on. Source: "CUDA C++ Programming Guide", architecture-
// and family-specific features.
INSTANTIATE_TEST_SUITE_P(
    Suffix, VerdictTable,
    testing::Values(
        ROW("cuda sm_90a@12.9", "driver=12.4 sm_90", "usable sm_90a"),
        ROW("cuda sm_90a@12.9", "driver=12.4 sm_89", "rejected arch-specific"),
        ROW("cuda sm_90a@12.9", "driver=12.9 sm_100", "rejected arch-specific"),
        ROW("cuda sm_100a@12.9", "driver=12.9 sm_100", "usable sm_100a"),
        ROW("cuda sm_100a@12.9", "driver=12.9 sm_103", "rejected arch-specific"),
        ROW("cuda sm_103a@12.9", "driver=12.9 sm_103", "usable sm_103a"),
        ROW("cuda sm_103a@12.9", "driver=12.9 sm_100", "rejected arch-specific"),
        ROW("cuda sm_120a@12.9", "driver=12.9 sm_120", "usable sm_120a"),
        ROW("cuda sm_120a@12.9", "driver=13.0 sm_121", "rejected arch-specific"),
        ROW("cuda sm_121a@13.0", "driver=13.0 sm_121", "usable sm_121a"),
        ROW("cuda sm_121a@13.0", "driver=13.0 sm_120", "rejected arch-specific"),
        ROW("cuda sm_100f@12.9", "driver=12.9 sm_100", "usable sm_100f"),
        ROW("cuda sm_100f@12.9", "driver=12.9 sm_103", "usable sm_100f"),
        ROW("cuda sm_100f@12.9", "driver=12.9 sm_120", "rejected arch-specific"),
        ROW("cuda sm_100f@12.9", "driver=12.9 sm_90", "rejected arch-specific"),
        ROW("cuda sm_103f@12.9", "driver=12.9 sm_103", "usable sm_103f"),
        ROW("cuda sm_103f@12.9", "driver=12.9 sm_100", "rejected arch-specific"),
        ROW("cuda sm_120f@12.9", "driver=12.9 sm_120", "usable sm_120f"),
        ROW("cuda sm_120f@12.9", "driver=13.0 sm_121", "usable sm_120f"),
        ROW("cuda sm_121f@13.0", "driver=13.0 sm_121", "usable sm_121f"),
        ROW("cuda sm_121f@13.0", "driver=13.0 sm_120", "rejected arch-specific"),
        ROW("cuda sm_120f@12.9", "driver=12.9 sm_100", "rejected arch-specific"),
        // exact match before family before lower minor; of two exact matches, the more specific
        ROW("cuda sm_100@12.9 sm_100f@12.9 sm_103@12.9", "driver=12.9 sm_103", "usable sm_103"),
        ROW("cuda sm_100@12.9 sm_100f@12.9", "driver=12.9 sm_103", "usable sm_100f"),
        ROW("cuda sm_103@12.9 sm_103a@12.9 sm_103f@12.9", "driver=12.9 sm_103", "usable sm_103a"),
        ROW("cuda sm_103@12.9 sm_103f@12.9", "driver=12.9 sm_103", "usable sm_103f"),
        ROW("cuda sm_90@12.9 sm_90a@12.9", "driver=12.4 sm_90", "usable sm_90a"),
        ROW("cuda sm_120@12.9 sm_120a@12.9", "driver=13.0 sm_121", "usable sm_120"),
        // all problems are reported, not just the first
        ROW("cuda sm_80@12.9 sm_90a@12.9", "driver=12.9 sm_100", "rejected arch-mismatch arch-specific"),
        ROW("cuda sm_90a@12.9 sm_120f@12.9", "driver=12.9 sm_100", "rejected arch-specific")));

// Tegra GPUs run only their own cubins, and no other GPU runs those. Source: "CUDA for Tegra";
// "CUDA C++ Programming Guide", binary compatibility.
INSTANTIATE_TEST_SUITE_P(
    Tegra, VerdictTable,
    testing::Values(
        ROW("cuda sm_53@12.9", "driver=10.2 tegra:sm_53", "rejected driver-too-old"),
        ROW("cuda sm_53@10.2", "driver=10.2 tegra:sm_53", "usable sm_53"),
        ROW("cuda sm_52@10.2", "driver=10.2 tegra:sm_53", "rejected tegra-image"),
        ROW("cuda sm_62@10.2", "driver=10.2 tegra:sm_62", "usable sm_62"),
        ROW("cuda sm_61@10.2", "driver=10.2 tegra:sm_62", "rejected tegra-image"),
        ROW("cuda sm_60@10.2", "driver=10.2 tegra:sm_62", "rejected tegra-image"),
        ROW("cuda sm_72@11.4", "driver=11.4 tegra:sm_72", "usable sm_72"),
        ROW("cuda sm_70@11.4", "driver=11.4 tegra:sm_72", "rejected tegra-image"),
        ROW("cuda sm_72@11.4", "driver=12.4 sm_75", "rejected tegra-image"),
        ROW("cuda sm_75@11.4", "driver=11.4 tegra:sm_72", "rejected arch-mismatch"),
        ROW("cuda sm_87@11.4", "driver=11.4 tegra:sm_87", "usable sm_87"),
        ROW("cuda sm_87@12.6", "driver=12.6 tegra:sm_87", "usable sm_87"),
        ROW("cuda sm_80@12.6", "driver=12.6 tegra:sm_87", "rejected tegra-image"),
        ROW("cuda sm_86@12.6", "driver=12.6 tegra:sm_87", "rejected tegra-image"),
        ROW("cuda sm_89@12.6", "driver=12.6 tegra:sm_87", "rejected arch-mismatch"),
        ROW("cuda sm_87@12.6", "driver=12.6 sm_89", "rejected tegra-image"),
        ROW("cuda sm_87@12.6", "driver=12.6 sm_86", "rejected arch-mismatch"),
        ROW("cuda sm_80@12.6 sm_86@12.6 sm_87@12.6", "driver=12.6 tegra:sm_87", "usable sm_87"),
        ROW("cuda sm_80@12.6 sm_87@12.6", "driver=12.6 sm_89", "usable sm_80"),
        ROW("cuda sm_101@12.9", "driver=12.9 tegra:sm_101", "usable sm_101"),
        ROW("cuda sm_101a@12.9", "driver=12.9 tegra:sm_101", "usable sm_101a"),
        ROW("cuda sm_101f@12.9", "driver=12.9 tegra:sm_101", "usable sm_101f"),
        ROW("cuda sm_100@12.9", "driver=12.9 tegra:sm_101", "rejected tegra-image"),
        ROW("cuda sm_100f@12.9", "driver=12.9 tegra:sm_101", "rejected tegra-image"),
        ROW("cuda sm_101@12.9", "driver=12.9 sm_103", "rejected tegra-image"),
        ROW("cuda sm_101f@12.9", "driver=12.9 sm_103", "rejected tegra-image"),
        ROW("cuda sm_110@13.0", "driver=13.0 tegra:sm_110", "usable sm_110"),
        ROW("cuda sm_110f@13.0", "driver=13.0 tegra:sm_110", "usable sm_110f"),
        ROW("cuda sm_110a@13.0", "driver=13.0 tegra:sm_110", "usable sm_110a"),
        ROW("cuda sm_101@12.9", "driver=13.0 tegra:sm_110", "rejected arch-mismatch"),
        ROW("cuda sm_110@13.0", "driver=13.0 sm_120", "rejected arch-mismatch"),
        // GB10 is integrated but not a Tegra
        ROW("cuda sm_120f@13.0", "driver=13.0 sm_121", "usable sm_120f"),
        // PTX can move to and from Tegra
        ROW("cuda compute_80@12.6", "driver=12.6 tegra:sm_87", "usable compute_80 ptx-only"),
        ROW("cuda compute_87@12.6", "driver=12.6 sm_89", "usable compute_87 ptx-only"),
        ROW("cuda compute_72@11.4", "driver=12.4 sm_75", "usable compute_72 ptx-only"),
        ROW("cuda sm_86@12.6 compute_86@12.6", "driver=12.6 tegra:sm_87", "usable compute_86 ptx-only"),
        ROW("cuda compute_100f@12.9", "driver=12.9 tegra:sm_101", "rejected arch-specific")));
// clang-format on

}  // namespace opdock::test
