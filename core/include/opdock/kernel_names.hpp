// opdock/kernel_names.hpp: the numbers of a plugin's kernels, which are positions in the list of
// plugin.toml and are found when the plugin is compiled. C++17, header-only.
// SPDX-License-Identifier: Apache-2.0
//
//   constexpr uint32_t kFill = OPDOCK_KERNEL_INDEX("fill<float>");
//   constexpr auto kRows = OPDOCK_KERNEL_FAMILY("rows", opdock::KernelTypes<float, opdock::half>,
//                                               opdock::KernelNumbers<1, 4>);
//   const uint32_t kernel = kRows(x.dtype(), items);  // rows<float, 1>, rows<opdock::half, 4>, …
//
// Neither compiles if plugin.toml ([device] "kernels", with lists expanded) has no such kernel. A
// family also does not compile if it leaves out one of the template's kernels that are listed
// there. Some combinations of a family's arguments may be missing there: asking for one of them
// throws an Error.
#ifndef OPDOCK_KERNEL_NAMES_HPP_
#define OPDOCK_KERNEL_NAMES_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "opdock/plugin.hpp"

namespace opdock {
namespace detail {

inline constexpr uint32_t kNoKernel = 0xffffffff;

constexpr uint32_t index_of(std::string_view name, const std::string_view* listed, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (listed[i] == name) return static_cast<uint32_t>(i);
  return kNoKernel;
}

// Removes `word`, and spaces before it, from the front of the text; returns whether it was there.
constexpr bool take(std::string_view* text, std::string_view word) {
  size_t begin = 0;
  while (begin < text->size() && (*text)[begin] == ' ') ++begin;
  if (text->substr(begin, word.size()) != word) return false;
  text->remove_prefix(begin + word.size());
  return true;
}

// Does the same with a decimal number.
constexpr bool take_number(std::string_view* text, int64_t* number) {
  const bool is_negative = take(text, "-");
  size_t digits = 0;
  *number = 0;
  for (take(text, ""); digits < 18 && digits < text->size(); ++digits) {
    const char c = (*text)[digits];
    if (c < '0' || c > '9') break;
    *number = *number * 10 + (c - '0');
  }
  if (is_negative) *number = -*number;
  text->remove_prefix(digits);
  return digits > 0;
}

}  // namespace detail

// A template argument that is one of these types, named as on the host; at run time a dtype chooses
// it.
template <class... T>
struct KernelTypes {
  static constexpr uint32_t kCount = sizeof...(T);

  // Returns the index of the type with this dtype; kCount if there is none.
  static constexpr uint32_t find(Dtype dtype) {
    uint32_t place = 0;
    static_cast<void>(((dtype == dtype_of<T>() || (++place, false)) || ...));
    return place;
  }
  static constexpr uint32_t take(std::string_view* text) {
    uint32_t place = 0;
    static_cast<void>(((detail::take(text, device_type_name<T>()) || (++place, false)) || ...));
    return place;
  }
  static std::string text(Dtype dtype) { return dtype.name(); }
};

// A template argument that is one of these numbers.
template <int64_t... N>
struct KernelNumbers {
  static constexpr uint32_t kCount = sizeof...(N);

  static constexpr uint32_t find(int64_t number) {
    uint32_t place = 0;
    static_cast<void>(((number == N || (++place, false)) || ...));
    return place;
  }
  static constexpr uint32_t take(std::string_view* text) {
    int64_t number = 0;
    return detail::take_number(text, &number) ? find(number) : kCount;
  }
  static std::string text(int64_t number) { return detail::concat(number); }
};

// The kernels that are instances of one template, indexed by the choice for each of its arguments,
// a KernelTypes or KernelNumbers. OPDOCK_KERNEL_FAMILY makes one.
template <class... Arguments>
class KernelFamily {
  static_assert(sizeof...(Arguments) > 0 && ((Arguments::kCount > 0) && ...),
                "a family has template arguments, and each has choices");

 public:
  // name: the template's name. listed: the `count` kernel names in plugin.toml.
  constexpr KernelFamily(std::string_view name, const std::string_view* listed, size_t count)
      : name_(name) {
    for (uint16_t& index : indices_) index = kNone;
    for (size_t i = 0; i < count; ++i) {
      std::string_view rest = listed[i];
      if (!detail::take(&rest, name) || !detail::take(&rest, "<")) continue;
      uint32_t combination = 0;
      if (take_arguments(rest, &combination))
        indices_[combination] = static_cast<uint16_t>(i);
      else
        has_others_ = true;
    }
  }

  // Whether a listed kernel of the template has arguments that are not among the choices.
  constexpr bool has_others() const { return has_others_; }
  // Whether a kernel of the template is listed.
  constexpr bool has_any() const {
    for (const uint16_t index : indices_)
      if (index != kNone) return true;
    return false;
  }
  // Whether each choice for each argument is that of a listed kernel.
  constexpr bool uses_all() const {
    bool all = true;
    uint32_t step = kCombinations;  // between combinations that differ in one argument by one
    ((step /= Arguments::kCount, all = all && uses_each(step, Arguments::kCount)), ...);
    return all;
  }

  // Returns the number of the kernel with these arguments, each a Dtype or an integer. Throws an
  // Error if there is none.
  template <class... Values>
  constexpr uint32_t operator()(const Values&... values) const {
    const uint32_t index = find(values...);
    if (index == detail::kNoKernel) refuse(Arguments::text(values)...);
    return index;
  }
  // Does the same, but returns detail::kNoKernel if there is none.
  template <class... Values>
  constexpr uint32_t find(const Values&... values) const {
    static_assert(sizeof...(Values) == sizeof...(Arguments), "a value for each template argument");
    uint32_t combination = 0;
    const bool known = (add<Arguments>(Arguments::find(values), &combination) && ...);
    if (!known || indices_[combination] == kNone) return detail::kNoKernel;
    return indices_[combination];
  }

 private:
  static constexpr uint16_t kNone = 0xffff;
  static constexpr uint32_t kCombinations = (Arguments::kCount * ...);

  // Adds the choice for the next argument to the combination; returns false if there is no such
  // choice.
  template <class Argument>
  static constexpr bool add(uint32_t choice, uint32_t* combination) {
    *combination = *combination * Argument::kCount + choice;
    return choice < Argument::kCount;
  }

  // Reads the part of a kernel's name after the "<"; returns false if its arguments are not among
  // the choices.
  static constexpr bool take_arguments(std::string_view rest, uint32_t* combination) {
    std::string_view separator = "";
    const bool taken = ((detail::take(&rest, separator) &&
                         (separator = ",", add<Arguments>(Arguments::take(&rest), combination))) &&
                        ...);
    return taken && detail::take(&rest, ">") && rest.empty();
  }

  constexpr bool uses_each(uint32_t step, uint32_t choices) const {
    for (uint32_t choice = 0; choice < choices; ++choice) {
      bool used = false;
      for (uint32_t i = 0; i < kCombinations; ++i)
        used = used || (i / step % choices == choice && indices_[i] != kNone);
      if (!used) return false;
    }
    return true;
  }

  template <class... Texts>
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(const Texts&... texts) const {
    std::string arguments;
    ((arguments += (arguments.empty() ? "" : ", ") + texts), ...);
    throw Error(OPDOCK_INTERNAL,
                detail::concat("found no kernel ", name_, "<", arguments,
                               "> in plugin.toml, wanted one that its \"kernels\" list; list it "
                               "there, or choose another in the plugin's code"));
  }

  std::string_view name_;
  uint16_t indices_[kCombinations] = {};  // by combination; the last argument varies fastest
  bool has_others_ = false;
};

}  // namespace opdock

// The list is in the header that opdock-pack --ops-header writes.
#ifdef OPDOCK_OPS_H
#define OPDOCK_KERNEL_INDEX(NAME)                                                           \
  [] {                                                                                      \
    constexpr auto& opdock_names = ::opdock::kernels_in_plugin_toml::names;                 \
    constexpr uint32_t opdock_index =                                                       \
        ::opdock::detail::index_of(NAME, opdock_names.data(), opdock_names.size());         \
    static_assert(opdock_index != ::opdock::detail::kNoKernel,                              \
                  "plugin.toml lists no kernel " NAME "; name it in [device] \"kernels\""); \
    return opdock_index;                                                                    \
  }()
#define OPDOCK_KERNEL_FAMILY(NAME, ...)                                           \
  [] {                                                                            \
    constexpr auto opdock_all_listed = OPDOCK_LISTED_FAMILY(NAME, __VA_ARGS__);   \
    static_assert(opdock_all_listed.uses_all(),                                   \
                  "plugin.toml lists no kernel " NAME                             \
                  "<...> with one of the template "                               \
                  "arguments " #__VA_ARGS__ "; name it in [device] \"kernels\""); \
    return opdock_all_listed;                                                     \
  }()
// The same, but plugin.toml need not list a kernel for each argument.
#define OPDOCK_LISTED_FAMILY(NAME, ...)                                                    \
  [] {                                                                                     \
    constexpr auto& opdock_names = ::opdock::kernels_in_plugin_toml::names;                \
    constexpr ::opdock::KernelFamily<__VA_ARGS__> opdock_family(NAME, opdock_names.data(), \
                                                                opdock_names.size());      \
    static_assert(!opdock_family.has_others(),                                             \
                  "plugin.toml lists a kernel " NAME                                       \
                  "<...> with other template arguments "                                   \
                  "than " #__VA_ARGS__ "; add them here, or take it out of \"kernels\"");  \
    return opdock_family;                                                                  \
  }()
#else
#define OPDOCK_KERNEL_INDEX(NAME)                                        \
  [] {                                                                   \
    static_assert(false, "found no OPDOCK_OPS_H for the kernel " NAME    \
                         "; compile with the "                           \
                         "header that opdock-pack --ops-header writes"); \
    return 0u;                                                           \
  }()
#define OPDOCK_KERNEL_FAMILY(NAME, ...) OPDOCK_KERNEL_INDEX(NAME)
#define OPDOCK_LISTED_FAMILY(NAME, ...) OPDOCK_KERNEL_INDEX(NAME)
#endif

#endif  // OPDOCK_KERNEL_NAMES_HPP_
