// opdock/signature.hpp: checks that a plugin's function takes the values of a schema. The header
// that opdock-pack writes from plugin.toml (opdock-pack --ops-header) uses it; plugin.hpp includes
// both if OPDOCK_OPS_H names that header.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_SIGNATURE_HPP_
#define OPDOCK_SIGNATURE_HPP_

#include <optional>
#include <type_traits>
#include <vector>

namespace opdock::detail {

// Stands for std::complex<double>, without <complex>.
struct Complex;
// Stands for an Object<T> of any T.
struct AnyObject;

// Whether a parameter of type Found, decayed, can be read from a value of the schema's type Wanted,
// given as the first C++ type for it in plugin.hpp's table.
template <class Found, class Wanted>
struct Reads : std::is_same<Found, Wanted> {};
template <>
struct Reads<float, double> : std::true_type {};
template <class T>
struct Reads<Object<T>, AnyObject> : std::true_type {};
template <class Found>
struct Reads<Found, Complex> : std::bool_constant<IsComplex<Found>::value> {};
template <class Found, class Wanted>
struct Reads<List<Found>, List<Wanted>> : Reads<Found, Wanted> {};
template <class Found, class Wanted>
struct Reads<std::vector<Found>, List<Wanted>> : Reads<Found, Wanted> {};
// A value that may be None needs an optional parameter; any other value may have one.
template <class Found, class Wanted>
struct Reads<std::optional<Found>, Wanted> : Reads<Found, Wanted> {};
template <class Found>
struct Reads<std::optional<Found>, Complex> : Reads<Found, Complex> {};
template <class Found, class Wanted>
struct Reads<std::optional<Found>, std::optional<Wanted>> : Reads<Found, Wanted> {};

template <class... Types>
struct Parameters {};

template <class... Found, class... Wanted>
constexpr bool are_read(Parameters<Found...>, Parameters<Wanted...>) {
  if constexpr (sizeof...(Found) != sizeof...(Wanted)) {
    return false;
  } else {
    // The first parameters, such as Plan&, are not values: they must have exactly that type.
    return ((std::is_same_v<Found, Wanted> || Reads<std::decay_t<Found>, Wanted>::value) && ...);
  }
}

// Whether a plan or run of type Found fits a schema whose signature is Wanted.
template <class Found, class Wanted>
inline constexpr bool takes = false;
template <class... Found, class... Wanted>
inline constexpr bool takes<void(Found...), void(Wanted...)> =
    are_read(Parameters<Found...>(), Parameters<Wanted...>());
template <class... Found, class... Wanted>
inline constexpr bool takes<void(Found...) noexcept, void(Wanted...)> =
    are_read(Parameters<Found...>(), Parameters<Wanted...>());

}  // namespace opdock::detail

#endif  // OPDOCK_SIGNATURE_HPP_
