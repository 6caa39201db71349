// Tests reading what Python sources import, from their text.
// SPDX-License-Identifier: Apache-2.0
#include "inspect/imports.h"

#include <gtest/gtest.h>

namespace opdock {
namespace {

// Returns one text for each import statement, such as "a.b", ".: _c" or "a.b: c d".
std::vector<std::string> imports_of(const std::string& source, bool is_later = false) {
  std::vector<std::string> texts;
  for (const PythonImport& one : read_python(source).imports) {
    if (one.is_later != is_later) continue;
    std::string text = std::string(static_cast<size_t>(one.level), '.') + one.module;
    if (!one.names.empty()) text += ":";
    for (const std::string& name : one.names) text += " " + name;
    texts.push_back(text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Imports, EveryFormOfTheStatement) {
  EXPECT_EQ(imports_of("import a"), Texts{"a"});
  EXPECT_EQ(imports_of("import a.b.c as d, e\n"), (Texts{"a.b.c", "e"}));
  EXPECT_EQ(imports_of("from a.b import c, d as e"), Texts{"a.b: c d"});
  EXPECT_EQ(imports_of("from . import _c"), Texts{".: _c"});
  EXPECT_EQ(imports_of("from .a import b"), Texts{".a: b"});
  EXPECT_EQ(imports_of("from ..a.b import c"), Texts{"..a.b: c"});
  EXPECT_EQ(imports_of("from a import (b,  # why\n    c as d,\n)\nimport e"),
            (Texts{"a: b c", "e"}));
  EXPECT_EQ(imports_of("from a import b, \\\n  c\nimport d"), (Texts{"a: b c", "d"}));
  EXPECT_EQ(imports_of("import a; import b"), (Texts{"a", "b"}));
  EXPECT_EQ(imports_of("from importlib.util import find_spec"), Texts{"importlib.util: find_spec"});
  EXPECT_EQ(imports_of("from a import *"), Texts{"a"});
  EXPECT_EQ(imports_of("important = 1\nfrom_a = 2\nimports.b()"), Texts{});
}

TEST(Imports, OfAllBlocksThatAnImportExecutes) {
  EXPECT_EQ(imports_of("try:\n  import a\nexcept ImportError:\n\timport b\nelse: import c\n"),
            (Texts{"a", "b", "c"}));
  EXPECT_EQ(imports_of("if x:\n    from . import a\nclass C:\n    import b\n"),
            (Texts{".: a", "b"}));
}

TEST(Imports, OfFunctionsComeLater) {
  const std::string source =
      "def f():\n  import a\n  def g():\n    import b\n  import c\nimport d\n";
  EXPECT_EQ(imports_of(source), Texts{"d"});
  EXPECT_EQ(imports_of(source, true), (Texts{"a", "b", "c"}));
  EXPECT_EQ(imports_of("def f():\n  if TYPE_CHECKING:\n    import a\n", true), Texts{});
}

TEST(Imports, NotOfFunctionsNorForOthers) {
  EXPECT_EQ(imports_of("def f():\n  import a\n\n  import b\nimport c\n"), Texts{"c"});
  EXPECT_EQ(imports_of("class C:\n  async def f(self):\n    import a\n  import b\n"), Texts{"b"});
  EXPECT_EQ(imports_of("if TYPE_CHECKING:\n  import a\nelse:\n  import b\n"), Texts{"b"});
  EXPECT_EQ(imports_of("if typing.TYPE_CHECKING:\n  import a\n"), Texts{});
  EXPECT_EQ(imports_of("if __name__ == '__main__':\n  import a\n"), Texts{});
}

TEST(Imports, NotOfTextsAndComments) {
  EXPECT_EQ(imports_of("# import a\n'import b'\n\"\"\"\nimport c\n\"\"\"\nimport d\n"), Texts{"d"});
  EXPECT_EQ(imports_of("x = '\\'; import a'\n"), Texts{}) << "a quote behind a backslash is no end";
  EXPECT_EQ(imports_of("x = 'open\nimport a"), Texts{"a"});
  EXPECT_EQ(imports_of("x = '''a'b''c\\''''\nimport d"), Texts{"d"});
  EXPECT_EQ(imports_of("f('a', \"\"\"b\n\"\"\", [1,\nimport_me])\nimport c"), Texts{"c"});
}

TEST(Imports, TextsAreThoseOfTheWholeSource) {
  const PythonSource source =
      read_python("def f():\n  return CDLL(os.path.join(here, rb'lib/libx.so'), f\"{a}.so\")\n");
  EXPECT_EQ(source.texts, (Texts{"lib/libx.so", "{a}.so"}));
  EXPECT_TRUE(source.loads_libraries);
  EXPECT_FALSE(read_python("import ctypes  # CDLL\n'dlopen'\n").loads_libraries);
}

// Whatever the bytes are, reading ends and stays within them.
TEST(Imports, TakesAnyBytes) {
  const std::string source = "from .a import (b, 'c' \"\"\"d\\\"\"\"\n# e\ndef f(): [{\\\nimport g";
  for (size_t size = 0; size <= source.size(); ++size) {
    for (const char byte : {'\'', '"', '\\', '(', ')', '\n', '\0', '\xff'}) {
      std::string cut = source.substr(0, size) + byte;
      cut.shrink_to_fit();
      read_python(cut);
      read_python(byte + cut);
    }
  }
}

}  // namespace
}  // namespace opdock
