// SPDX-License-Identifier: Apache-2.0
#include "advice.h"

#include <string_view>

#include "errors.h"

namespace opdock::python {

std::string advise(std::string text, PyObject* array) {
  constexpr std::string_view kGeneral = "make it contiguous first";
  if (array == nullptr || !text.ends_with(kGeneral)) return text;
  const std::string type = type_name(array);
  const std::string library = type.substr(0, type.find('.'));
  std::string own;
  if (library == "numpy" || library == "cupy") {
    own = "pass " + library + ".ascontiguousarray(…)";
  } else if (library == "torch") {
    own = "pass ….contiguous()";
  } else if (library == "jax" || library == "jaxlib") {
    own = "pass jax.numpy.copy(…)";
  } else {
    return text;
  }
  return text.replace(text.size() - kGeneral.size(), kGeneral.size(), own);
}

}  // namespace opdock::python
