// SPDX-License-Identifier: Apache-2.0
#include "formula/device_element_kernels.h"

#include "formula/device_writer.h"

namespace opdock::formula {
namespace {

// A vector of elements a thread, or sums of chunks of rows.
class ElementWriter : public DeviceWriter {
 public:
  using DeviceWriter::DeviceWriter;

 private:
  void write_body() override {
    const std::string index = shape_.is_wide ? "int64_t" : "uint32_t";
    const std::string column = shape_.is_wide ? "int64_t" : "int";
    line("pdl_wait_and_trigger();");
    if (has_sums_) return write_element_chunks(index, column);
    line("const " + index + " number = vector_number<" + index + ">();");
    line("if (number >= static_cast<" + index + ">(p.rows * p.slots.divisor)) return;");
    if (shape_.dims == 0) {
      line("const " + index + " row = 0;");
      line("const " + column + " column = static_cast<" + column + ">(number) * kVector;");
    } else {
      line("const " + index + " row = p.slots.quotient(number);");
      line("const " + column + " column = static_cast<" + column + ">(number - row * static_cast<" +
           index + ">(p.slots.divisor)) * kVector;");
    }
    write_count();
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) + "> place(p, row);");
    write_elements_of_row();
  }

  // Writes an elementwise kernel with sums over rows. Of a block's threads, `lanes` neighbours
  // share a row, and each of these groups takes every height-th row of the chunk.
  void write_element_chunks(const std::string& index, const std::string& column) {
    line("OPDOCK_SHARED(long long, scratch, 64);");
    line("const int width = static_cast<int>(lanes), height = kColumnThreads / width;");
    line("const int64_t slot = block_index() * width + thread_index() % width;");
    line("const int64_t first_column = slot * kVector;");
    line("const " + column + " column = static_cast<" + column + ">(first_column);");
    line("const int count =");
    line(
        "    first_column < p.columns ? static_cast<int>(min_of(p.columns - column, kVector)) : "
        "0;");
    line("const int64_t begin = block_index_y() * rows_of_chunk;");
    line("const int64_t stop = begin + rows_of_chunk < p.rows ? begin + rows_of_chunk : p.rows;");
    write_sum_variables("kVector");
    line("const int64_t first = count > 0 ? begin + thread_index() / width : stop;");
    line("for (int64_t number = first; number < stop; number += height) {");
    ++depth_;
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) +
         "> place(p, static_cast<" + index + ">(number));");
    write_elements_of_row();
    end_vectors();
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const std::string n = std::to_string(i);
      if (is_column_sum(i))
        line("store_column_sums(sum" + n + ", width, p.columns, " + partial(i) +
             " + block_index_y() * p.columns);");
      if (graph_.output(i) != Output::kTotal) continue;
      line("total" + n + " = RowTeam<true, kColumnThreads>().reduce<SumOf>(total" + n + ", " +
           next_scratch() + ");");
      line("if (thread_index() == 0)");
      line("  " + partial(i) + "[block_index_y() * grid_blocks() + block_index()] = total" + n +
           ";");
    }
  }
};

// Writes a kernel whose blocks have a tile each: they load the tiles of transposed inputs along
// the rows, and then compute vectors of the tile's rows.
class TileWriter : public DeviceWriter {
 public:
  using DeviceWriter::DeviceWriter;

 private:
  void write_body() override {
    const std::string dims = std::to_string(shape_.dims);
    line("constexpr int kTile = " + std::to_string(formula::kTile) + ";");
    line("constexpr int kVectors = kTile * kTile / kVector / " + std::to_string(shape_.threads) +
         ";");
    const auto for_each_transposed = [&](const auto& f) {
      for (size_t i = 0; i < graph_.inputs().size(); ++i)
        if (is_transposed(i)) f(i, element_type(graph_.inputs()[i].type), std::to_string(i));
    };
    for_each_transposed([&](size_t, const std::string& type, const std::string& n) {
      line("OPDOCK_SHARED(" + type + ", tile" + n + ", (kTile * tile_step<kTile, " + type + ">));");
    });
    line("pdl_wait_and_trigger();");
    line("const Tile<kTile, " + dims + "> tile(p);");
    for_each_transposed([&](size_t, const std::string& type, const std::string& n) {
      line("tile.load<" + type + ">(p, " + n + ", tile" + n + ");");
    });
    line("block_barrier();");
    line("OPDOCK_UNROLL");
    line("for (int i = 0; i < kVectors; ++i) {");
    ++depth_;
    line("const int vector = thread_index() + i * " + std::to_string(shape_.threads) + ";");
    line("const int below = vector / (kTile / kVector);");
    line("const int beside = vector % (kTile / kVector) * kVector;");
    line("if (below >= tile.rows || beside >= tile.columns) continue;");
    line("const uint32_t row = tile.row + static_cast<uint32_t>(below);");
    line("const int column = tile.column + beside;");
    write_count();
    line("const RowPlace<uint32_t, " + dims + "> place(p, row);");
    write_bases();
    write_row_numbers(1);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      if (!graph_.inputs()[i].has_columns()) continue;
      const std::string n = std::to_string(i);
      const std::string to = "const " + pack(graph_.inputs()[i].type) + " in" + n;
      if (is_transposed(i)) {
        line(to + " = tile.vector<kVector>(tile" + n + ", below, beside);");
      } else {
        write_load(i, to);
      }
    }
    write_results_of_vector(0, "k");
    end_vectors();
  }
};

}  // namespace

std::string device_element_kernel(const Graph& graph, const DeviceShape& shape,
                                  const std::string& name) {
  return ElementWriter(graph, shape, name).write();
}

std::string device_tile_kernel(const Graph& graph, const DeviceShape& shape,
                               const std::string& name) {
  return TileWriter(graph, shape, name).write();
}

}  // namespace opdock::formula
