// Result codes of the core. CUDA and HIP use the same numbers for all of these, so that both front
// ends return them unchanged.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softgpu {

using Result = int;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kInvalidPtx = 218;
inline constexpr Result kUnsupportedPtxVersion = 222;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kLaunchOutOfResources = 701;
inline constexpr Result kMisalignedAddress = 716;  // CUDA only
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kCooperativeLaunchTooLarge = 720;
inline constexpr Result kNotPermitted = 800;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kCaptureUnsupported = 900;
inline constexpr Result kCaptureInvalidated = 901;
inline constexpr Result kCaptureMerge = 902;
inline constexpr Result kCaptureUnmatched = 903;
inline constexpr Result kCaptureIsolation = 905;
inline constexpr Result kCaptureImplicit = 906;
inline constexpr Result kCapturedEvent = 907;
inline constexpr Result kInvalidClusterSize = 912;

}  // namespace softgpu
