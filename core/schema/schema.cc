// SPDX-License-Identifier: Apache-2.0
#include "schema/schema.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/similar_names.h"
#include "opdock/plugin.h"
#include "schema/defaults.h"
#include "schema/scanner.h"

namespace opdock {
namespace {

struct TypeName {
  std::string_view name;
  uint32_t tag;
};
constexpr TypeName kTypes[] = {
    {"Tensor", OPDOCK_TAG_TENSOR},    {"int", OPDOCK_TAG_INT},
    {"float", OPDOCK_TAG_FLOAT},      {"bool", OPDOCK_TAG_BOOL},
    {"str", OPDOCK_TAG_STRING},       {"complex", OPDOCK_TAG_COMPLEX},
    {"ScalarType", OPDOCK_TAG_DTYPE}, {"Device", OPDOCK_TAG_DEVICE},
    {"Stream", OPDOCK_TAG_STREAM},    {"Generator", OPDOCK_TAG_GENERATOR},
    {"Object", OPDOCK_TAG_OBJECT},
};
constexpr std::string_view kTypeList =
    "one of Tensor, int, float, bool, str, complex, ScalarType, Device, Stream, Generator, Object";

// Returns " (did you mean Tensor?)", or an empty text.
std::string meant_type(std::string_view word) {
  std::vector<std::string> names;
  for (const TypeName& type : kTypes) names.emplace_back(type.name);
  const std::vector<std::string> similar = similar_names(std::string(word), names);
  return similar.empty() ? "" : " (did you mean " + similar.front() + "?)";
}

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
  // Returns the position of the error.
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
      param.fallback = parse_default(&in_, param.type);
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
    if (type.tag == OPDOCK_TAG_NONE) {
      in_.fail("a type: " + std::string(kTypeList) + meant_type(name), start);
    }
    if (type.tag == OPDOCK_TAG_OBJECT) {
      type.object = parse_object();
    } else {
      type.alias = parse_alias(type.tag == OPDOCK_TAG_TENSOR);
    }
    bool question = in_.take("?");
    if (in_.take("[")) {
      if (!in_.take("]")) in_.fail("']' (lists have no fixed size)");
      type.list = true;
      type.optional_element = question;
      type.optional = in_.take("?");
      if (question && type.alias != 0) in_.fail("Tensor(a!)[] or Tensor(a!)?, not both", start);
      if (type.optional_element && type.tag != OPDOCK_TAG_TENSOR) {
        in_.fail("optional elements only in Tensor?[]", start);
      }
      if (type.tag == OPDOCK_TAG_STREAM || type.tag == OPDOCK_TAG_GENERATOR) {
        in_.fail("a type other than a list of " + std::string(name), start);
      }
    } else {
      type.optional = question;
    }
    if (in_.peek() == '?' || in_.peek() == '[') in_.fail("a name (types do not nest further)");
    return type;
  }

  // Parses "(aio_handle)" after Object.
  std::string parse_object() {
    in_.expect("(");
    std::string name;
    do {
      const std::string_view word = in_.word();
      if (word.empty()) in_.fail("the object's type, such as aio_handle or my_plugin.cache");
      if (!name.empty()) name += '.';
      name += word;
    } while (!in_.failed() && in_.take("."));
    in_.expect(")");
    return name;
  }

  // Parses "(a!)" after Tensor.
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
    const size_t start = in_.position();
    SchemaReturn result;
    result.type = parse_type();
    const SchemaType& type = result.type;
    const bool tensor = type.tag == OPDOCK_TAG_TENSOR;
    const bool scalar = type.tag == OPDOCK_TAG_INT || type.tag == OPDOCK_TAG_FLOAT ||
                        type.tag == OPDOCK_TAG_BOOL || type.tag == OPDOCK_TAG_OBJECT;
    const bool bare = !type.list && !type.optional;
    if (!(tensor
              ? (type.alias == 0 ? !type.optional_element && !(type.list && type.optional) : bare)
              : scalar && bare)) {
      in_.fail(
          "a result: Tensor, Tensor(a!), Tensor?, Tensor[], int, float, bool, Object(type), "
          "several "
          "in parentheses, or ()",
          start);
    }
    if (type.alias != 0) find_returned(&result, start);
    if (schema_.returns.size() >= kMaxReturns) {
      in_.fail("at most " + std::to_string(kMaxReturns) + " results", start);
    }
    if (!in_.failed()) schema_.returns.push_back(std::move(result));
  }

  // Finds the parameter whose tensor is returned.
  void find_returned(SchemaReturn* result, size_t start) {
    for (size_t i = 0; i < schema_.params.size(); ++i) {
      const SchemaType& type = schema_.params[i].type;
      if (type.alias != result->type.alias) continue;
      if (type.list || type.optional) in_.fail("an alias of a plain Tensor parameter", start);
      result->param = static_cast<int>(i);
    }
    if (result->param < 0) {
      in_.fail("an alias letter that a parameter has, such as Tensor(a!)", start);
    }
    for (const SchemaReturn& other : schema_.returns) {
      if (other.type.alias == result->type.alias) {
        in_.fail("each aliased parameter returned once", start);
      }
    }
  }

  Scanner in_;
  Schema schema_;
};

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
  if (!type.object.empty()) text += "(" + type.object + ")";
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
    if (param.fallback) text += "=" + to_text(*param.fallback);
  }
  text += ") -> ";
  if (returns.size() != 1) text += "(";
  for (size_t i = 0; i < returns.size(); ++i) {
    if (i > 0) text += ", ";
    text += to_text(returns[i].type);
  }
  if (returns.size() != 1) text += ")";
  return text;
}

std::string Schema::digest() const {
  return to_hex(sha256(std::string_view(text())));
}

size_t Schema::fresh_results() const {
  return static_cast<size_t>(
      std::count_if(returns.begin(), returns.end(),
                    [](const SchemaReturn& result) { return result.is_fresh_tensor(); }));
}

bool Schema::is_variable() const {
  return std::any_of(returns.begin(), returns.end(), [](const SchemaReturn& result) {
    return result.is_fresh_tensor() && (result.type.list || result.type.optional);
  });
}

int Schema::find(std::string_view param) const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].name == param) return static_cast<int>(i);
  }
  return -1;
}

int Schema::first_tensor() const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].type.tag == OPDOCK_TAG_TENSOR) return static_cast<int>(i);
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
