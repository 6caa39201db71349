// opdock/op.hpp: what the host part of an op usually needs, in one header: the arguments and their
// checks (tensor.hpp), plan, run and OPDOCK_OP (plugin.hpp), the numbers of kernels
// (kernel_names.hpp), and the launches of ops over rows (row_op.hpp) and over elements
// (elementwise_op.hpp). C++17, header-only.
// SPDX-License-Identifier: Apache-2.0
//
//   namespace my_op {
//   using namespace opdock::usual;
//   …
//   }
#ifndef OPDOCK_OP_HPP_
#define OPDOCK_OP_HPP_

#include "opdock/elementwise_op.hpp"
#include "opdock/kernel_names.hpp"
#include "opdock/plugin.hpp"
#include "opdock/row_op.hpp"

namespace opdock {

// The names that nearly every op uses, and no others: a plugin's own names, such as Params and Row,
// stay free.
namespace usual {

using opdock::Call;
using opdock::check;
using opdock::Dtype;
using opdock::dtype_of;
using opdock::Error;
using opdock::KernelNumbers;
using opdock::KernelTypes;
using opdock::Plan;
using opdock::Results;
using opdock::RowEdges;
using opdock::RowTypes;
using opdock::Tensor;
using opdock::detail::concat;
using OptionalTensor = std::optional<Tensor>;

}  // namespace usual
}  // namespace opdock
#endif  // OPDOCK_OP_HPP_
