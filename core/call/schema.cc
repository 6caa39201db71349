// SPDX-License-Identifier: Apache-2.0
#include "call/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/sha256.h"
#include "call/scanner.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

struct TypeName {
  std::string_view name;
  uint32_t tag;
};
constexpr TypeName kTypes[] = {
    {"Tensor", OPDOCK_TENSOR},       {"int", OPDOCK_INT},       {"float", OPDOCK_FLOAT},
    {"bool", OPDOCK_BOOL},           {"str", OPDOCK_STRING},    {"complex", OPDOCK_COMPLEX},
    {"ScalarType", OPDOCK_DTYPE},    {"Device", OPDOCK_DEVICE}, {"Stream", OPDOCK_STREAM},
    {"Generator", OPDOCK_GENERATOR}, {"Object", OPDOCK_OBJECT},
};
constexpr std::string_view kTypeList =
    "one of Tensor, int, float, bool, str, complex, ScalarType, Device, Stream, Generator, Object";

// Parameters are passed by name from Python, so none may be one of its keywords.
constexpr std::string_view kPythonKeywords[] = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};

bool is_keyword(std::string_view word) {
  return std::find(std::begin(kPythonKeywords), std::end(kPythonKeywords), word) !=
         std::end(kPythonKeywords);
}

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : in_(text) {}

  std::optional<Schema> parse() {
    parse_name();
    parse_params();
    in_.expect("->");
    parse_returns();
    if (!in_.failed() && !in_.at_end()) in_.fail("the end of the schema");
    if (in_.failed()) return std::nullopt;
    return std::move(schema_);
  }

  Reason reason() const { return make_reason(Code::kSchemaInvalid, in_.found(), in_.wanted()); }
  // Of the error.
  size_t position() const { return in_.position(); }

 private:
  void parse_name() {
    size_t start = in_.position();
    std::string_view name = in_.word();
    if (name.empty()) in_.fail("the op's name: a letter or '_', then letters, digits and '_'");
    if (is_keyword(name)) in_.fail("a name that is not a Python keyword", start);
    schema_.name = name;
    if (in_.peek() == '.') in_.fail("'(' (overload names are not supported: name the op apart)");
    if (in_.peek() == ':') in_.fail("'(' (namespaces are not supported: the plugin's name is one)");
  }

  void parse_params() {
    in_.expect("(");
    if (in_.take(")")) return;
    bool keyword_only = false;
    while (!in_.failed()) {
      size_t start = in_.position();
      if (in_.take("*")) {
        if (keyword_only) in_.fail("one '*' only", start);
        keyword_only = true;
        if (in_.peek() == ')') in_.fail("',' and a parameter after '*'");
      } else {
        parse_param(keyword_only);
      }
      if (in_.take(")")) return;
      if (!in_.take(",")) in_.fail("',' or ')'");
    }
  }

  void parse_param(bool keyword_only) {
    SchemaParam param;
    param.keyword_only = keyword_only;
    param.type = parse_type();
    in_.peek();
    size_t start = in_.position();
    std::string_view name = in_.word();
    if (name.empty()) in_.fail("the parameter's name after its type");
    if (is_keyword(name)) in_.fail("a name that is not a Python keyword", start);
    if (schema_.find(name) >= 0) in_.fail("a name that no other parameter has", start);
    param.name = name;
    if (param.type.alias != 0) {
      for (const SchemaParam& other : schema_.params) {
        if (other.type.alias == param.type.alias) {
          in_.fail("an alias letter that no other parameter has", start);
        }
      }
    }
    if (in_.take("=")) {
      param.fallback = parse_default(param.type);
    } else if (!keyword_only && !schema_.params.empty() && schema_.params.back().fallback) {
      in_.fail("a default for '" + param.name + "', as a parameter before it has one", start);
    }
    if (schema_.params.size() >= kMaxParams) {
      in_.fail("at most " + std::to_string(kMaxParams) + " parameters", start);
    }
    if (!in_.failed()) schema_.params.push_back(std::move(param));
  }

  SchemaType parse_type() {
    SchemaType type;
    in_.peek();
    size_t start = in_.position();
    std::string_view name = in_.word();
    for (const TypeName& known : kTypes) {
      if (known.name == name) type.tag = known.tag;
    }
    if (type.tag == OPDOCK_NONE) in_.fail("a type: " + std::string(kTypeList), start);
    type.alias = parse_alias(type.tag == OPDOCK_TENSOR);
    bool question = in_.take("?");
    if (in_.take("[")) {
      if (!in_.take("]")) in_.fail("']' (lists have no fixed size)");
      type.list = true;
      type.optional_element = question;
      type.optional = in_.take("?");
      if (question && type.alias != 0) in_.fail("Tensor(a!)[] or Tensor(a!)?, not both", start);
      if (type.optional_element && type.tag != OPDOCK_TENSOR) {
        in_.fail("optional elements only in Tensor?[]", start);
      }
      if (type.tag == OPDOCK_STREAM || type.tag == OPDOCK_GENERATOR) {
        in_.fail("a type other than a list of " + std::string(name), start);
      }
    } else {
      type.optional = question;
    }
    if (in_.peek() == '?' || in_.peek() == '[') in_.fail("a name (types do not nest further)");
    return type;
  }

  // "(a!)" after Tensor.
  char parse_alias(bool allowed) {
    in_.peek();
    size_t start = in_.position();
    if (!in_.take("(")) return 0;
    if (!allowed) in_.fail("a name (only Tensor may be aliased)", start);
    std::string_view letter = in_.word();
    if (letter.size() != 1 || letter[0] < 'a' || letter[0] > 'z') {
      in_.fail("an alias such as (a!): one lower-case letter and '!'", start);
    }
    if (!in_.take("!")) {
      in_.fail("'!' (an alias that is not written, a view, is not supported)");
    }
    in_.expect(")");
    return in_.failed() ? '\0' : letter[0];
  }

  SchemaDefault parse_default(const SchemaType& type) {
    SchemaDefault value;
    in_.peek();
    size_t start = in_.position();
    if (in_.take("None")) {
      if (!type.optional) {
        in_.fail(
            "a default of type " + to_text(type) + " (or make the type " + to_text(type) + "?)",
            start);
      }
      return value;  // OPDOCK_NONE
    }
    if (!type.list) return parse_scalar(type.tag);
    value.tag = OPDOCK_LIST;
    if (!in_.take("[")) in_.fail("a list such as [1, 2], or None for an optional one");
    if (in_.take("]")) return value;
    while (!in_.failed()) {
      value.items.push_back(parse_scalar(type.tag));
      if (in_.take("]")) break;
      if (!in_.take(",")) in_.fail("',' or ']'");
    }
    return value;
  }

  SchemaDefault parse_scalar(uint32_t tag) {
    SchemaDefault value;
    value.tag = tag;
    in_.peek();
    size_t start = in_.position();
    switch (tag) {
      case OPDOCK_BOOL:
        if (in_.take("True")) {
          value.integer = 1;
        } else if (!in_.take("False")) {
          in_.fail("True or False");
        }
        break;
      case OPDOCK_INT: {
        std::string_view digits = in_.number();
        if (digits.starts_with('+')) digits = {};
        auto [end, problem] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value.integer);
        if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size()) {
          in_.fail("an integer that fits 64 bits", start);
        }
        break;
      }
      case OPDOCK_FLOAT:
      case OPDOCK_COMPLEX: {
        std::string_view digits = in_.number();
        if (digits.starts_with('+')) digits = {};
        auto [end, problem] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value.real);
        if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size()) {
          in_.fail("a number that fits a double, such as 1.0 or -1e-5", start);
        }
        break;
      }
      case OPDOCK_STRING: {
        std::optional<std::string> text = in_.quoted();
        if (!text) in_.fail("a text in double quotes");
        if (text) value.text = *std::move(text);
        break;
      }
      default:
        in_.fail("None (a default of this type cannot be written)", start);
    }
    return value;
  }

  void parse_returns() {
    if (in_.take("(")) {
      if (in_.take(")")) return;
      while (!in_.failed()) {
        parse_return();
        if (in_.take(")")) break;
        if (!in_.take(",")) in_.fail("',' or ')' (results have no names)");
      }
    } else {
      parse_return();
    }
  }

  void parse_return() {
    in_.peek();
    size_t start = in_.position();
    if (!in_.take("Tensor")) in_.fail("a result: Tensor, Tensor(a!), (Tensor, …) or ()");
    SchemaReturn result;
    result.alias = parse_alias(true);
    if (in_.peek() == '?' || in_.peek() == '[')
      in_.fail("a Tensor that is neither optional nor a list");
    for (size_t i = 0; result.alias != 0 && i < schema_.params.size(); ++i) {
      const SchemaType& type = schema_.params[i].type;
      if (type.alias != result.alias) continue;
      if (type.list || type.optional) in_.fail("an alias of a plain Tensor parameter", start);
      result.param = static_cast<int>(i);
    }
    if (result.alias != 0 && result.param < 0) {
      in_.fail("an alias letter that a parameter has, such as Tensor(a!)", start);
    }
    for (const SchemaReturn& other : schema_.returns) {
      if (result.alias != 0 && other.alias == result.alias) {
        in_.fail("each aliased parameter returned once", start);
      }
    }
    if (schema_.returns.size() >= kMaxReturns) {
      in_.fail("at most " + std::to_string(kMaxReturns) + " results", start);
    }
    if (!in_.failed()) schema_.returns.push_back(result);
  }

  Scanner in_;
  Schema schema_;
};

std::string number_text(double value) {
  char buffer[40];
  auto [end, problem] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string default_text(const SchemaDefault& value) {
  switch (value.tag) {
    case OPDOCK_BOOL:
      return value.integer ? "True" : "False";
    case OPDOCK_INT:
      return std::to_string(value.integer);
    case OPDOCK_FLOAT:
    case OPDOCK_COMPLEX:
      return number_text(value.real);
    case OPDOCK_STRING: {
      std::string text = "\"";
      for (char c : value.text) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
      }
      return text + '"';
    }
    case OPDOCK_LIST: {
      std::string text = "[";
      for (const SchemaDefault& item : value.items) {
        if (text.size() > 1) text += ", ";
        text += default_text(item);
      }
      return text + "]";
    }
    default:
      return "None";
  }
}

std::string alias_text(char alias) {
  return alias == 0 ? "" : std::string("(") + alias + "!)";
}

}  // namespace

std::string to_text(const SchemaType& type) {
  std::string text;
  for (const TypeName& known : kTypes) {
    if (known.tag == type.tag) text = known.name;
  }
  text += alias_text(type.alias);
  if (type.optional_element) text += '?';
  if (type.list) text += "[]";
  if (type.optional) text += '?';
  return text;
}

std::string Schema::text() const {
  std::string text = name + "(";
  bool star = false;
  for (size_t i = 0; i < params.size(); ++i) {
    const SchemaParam& param = params[i];
    if (i > 0) text += ", ";
    if (param.keyword_only && !star) {
      text += "*, ";
      star = true;
    }
    text += to_text(param.type) + " " + param.name;
    if (param.fallback) text += "=" + default_text(*param.fallback);
  }
  text += ") -> ";
  if (returns.size() != 1) text += "(";
  for (size_t i = 0; i < returns.size(); ++i) {
    if (i > 0) text += ", ";
    text += "Tensor" + alias_text(returns[i].alias);
  }
  if (returns.size() != 1) text += ")";
  return text;
}

std::string Schema::digest() const {
  return to_hex(sha256(std::string_view(text())));
}

size_t Schema::fresh_outputs() const {
  return static_cast<size_t>(std::count_if(returns.begin(), returns.end(),
                                           [](const SchemaReturn& r) { return r.alias == 0; }));
}

int Schema::find(std::string_view param) const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].name == param) return static_cast<int>(i);
  }
  return -1;
}

int Schema::first_tensor() const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].type.tag == OPDOCK_TENSOR) return static_cast<int>(i);
  }
  return -1;
}

std::optional<Schema> parse_schema(std::string_view text, Reason* error, size_t* at) {
  SchemaParser parser(text);
  std::optional<Schema> schema = parser.parse();
  if (!schema && error != nullptr) *error = parser.reason();
  if (!schema && at != nullptr) *at = parser.position();
  return schema;
}

}  // namespace opdock
