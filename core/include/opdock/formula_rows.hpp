// opdock/formula_rows.hpp: goes over the rows of a formula's call (opdock/formula_cpu.h), for the
// code that is compiled for it.
// SPDX-License-Identifier: Apache-2.0
//
// The code sees each row as contiguous elements. Those of a tensor that are not so are copied, a
// tile of rows and columns at a time, so that each cache line is used as a whole even where a
// column is contiguous instead of a row.
#ifndef OPDOCK_FORMULA_ROWS_HPP_
#define OPDOCK_FORMULA_ROWS_HPP_

#include <new>

#include "opdock/formula_copy.hpp"
#include "opdock/formula_cpu.h"
#include "opdock/formula_values.hpp"

namespace opdock {
namespace formula {
namespace OPDOCK_SIMD_LEVEL {

inline constexpr int kMaxTensors = 80;

// The properties of a tensor that are known when the code is written.
struct TensorForm {
  int size;          // bytes of an element
  bool has_columns;  // or one element for each row
  // Sums over rows: doubles, one for each column if has_columns, else one.
  bool is_sum = false;
};
// The properties of a formula that are known when the code is written.
struct Form {
  int inputs, results;
  const TensorForm* tensors;  // [inputs + results]
  // Whether a row is computed as a whole, and whether the code needs to know its place.
  bool has_whole_rows, has_places;
  int64_t
      kept_bytes;  // of each column, for values that are kept from one pass over a row to the next
};

// A row, or several short ones, as the code sees it.
class Row {
 public:
  int64_t count = 0;   // elements
  int64_t number = 0;  // of the row
  int64_t column = 0;  // of the first element
  int64_t columns = 0;

  template <class T>
  HWY_INLINE Column<T> input(int i) const {
    return {static_cast<const T*>(data_[i]), mask_[i]};
  }
  // The element of an input that has one for the whole row.
  template <class T>
  HWY_INLINE const T* one(int i) const {
    return static_cast<const T*>(data_[i]);
  }
  template <class T>
  HWY_INLINE T* result(int tensor) const {
    return static_cast<T*>(data_[tensor]);
  }
  // Memory for values that are kept: `offset` bytes of each column are those of other values.
  template <class T>
  HWY_INLINE T* kept(int64_t offset) const {
    return reinterpret_cast<T*>(kept_ + offset * kept_columns_);
  }

 private:
  friend class Rows;
  void* data_[kMaxTensors];
  int64_t mask_[kMaxTensors];
  char* kept_ = nullptr;
  int64_t kept_columns_ = 0;
};

class Rows {
 public:
  Rows(const Form& form, const opdock_formula_call& call) : form_(form), call_(call) {
    const int count = form.inputs + form.results;
    const int64_t columns = call.columns;
    // Short rows are computed several at a time, so that vectors are full.
    is_flat_ = !form.has_whole_rows && !form.has_places && call.rows > 1 && columns <= kFlat &&
               (columns % kLanes != 0 || columns < 2 * kLanes);
    bool has_copies = false, is_transposed = false;
    int least = 8;
    for (int t = 0; t < count; ++t) {
      Tensor& tensor = tensors_[t];
      const opdock_formula_tensor& given = at(t);
      tensor.data = static_cast<char*>(given.data);
      tensor.strides = given.strides;
      tensor.column = given.column_stride;
      tensor.size = form.tensors[t].size;
      tensor.inner = call.ndim > 0 ? given.strides[call.ndim - 1] : 0;
      tensor.how = form.tensors[t].is_sum               ? How::kSum
                   : !form.tensors[t].has_columns       ? How::kOne
                   : is_flat_                           ? How::kCopied
                   : tensor.column == 1 || columns == 1 ? How::kInPlace
                   : t >= form.inputs                   ? How::kCopied
                   : tensor.column == 0                 ? How::kSame
                                                        : How::kCopied;
      has_same_ = has_same_ || tensor.how == How::kSame;
      has_sums_ = has_sums_ || tensor.how == How::kSum;
      if (tensor.how != How::kCopied) continue;
      has_copies = true;
      const int64_t inner = tensor.inner < 0 ? -tensor.inner : tensor.inner;
      const int64_t step = tensor.column < 0 ? -tensor.column : tensor.column;
      if (inner == 0 || inner >= step) continue;
      is_transposed = true;
      if (tensor.size < least) least = tensor.size;
    }
    tile_columns_ = columns;
    tile_rows_ = INT64_MAX;
    if (is_flat_) {
      tile_rows_ = columns > 0 ? kTile / columns : 1;
    } else if (has_copies) {
      tile_rows_ = is_transposed ? 64 / least : 1;  // the elements of a cache line
      if (tile_rows_ > 32) tile_rows_ = 32;
      if (form.has_whole_rows) {
        while (tile_rows_ > 1 && tile_rows_ * columns * least > kMaxTileBytes) tile_rows_ /= 2;
      } else if (tile_columns_ > kTile) {
        tile_columns_ = kTile;
      }
    }
    // The sums of a tile stay in the first-level cache from row to row.
    if (has_sums_ && !is_flat_ && !form.has_whole_rows && tile_columns_ > kTile)
      tile_columns_ = kTile;
    // At distances of a power of two, the rows of a tile would share a few lines of the cache.
    pitch_ = is_flat_ ? columns : tile_columns_ + 64;
    allocate(count);
  }
  ~Rows() { ::operator delete[](memory_, std::align_val_t(64)); }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  // Calls body(row) for pieces begin … end - 1.
  template <class Body>
  HWY_INLINE void run(int64_t begin, int64_t end, const Body& body) {
    const int64_t columns = call_.columns;
    const int64_t piece = OPDOCK_FORMULA_PIECE;
    const int64_t per_row =
        form_.has_whole_rows || columns == 0 ? 1 : (columns + piece - 1) / piece;
    int64_t row = begin / per_row;
    move_to(row);
    while (row * per_row < end) {
      int64_t first = (begin - row * per_row) * piece, last = (end - row * per_row) * piece;
      if (per_row == 1 || first < 0) first = 0;
      if (per_row == 1 || last > columns) last = columns;
      int64_t rows = 1;
      if (first == 0 && last == columns) rows = rows_of_tile(end / per_row - row);
      if (is_flat_) {
        run_flat(row, rows, body);
      } else {
        run_tiles(row, rows, first, last, body);
      }
      row += rows;
    }
  }

  // Calls body(row) for pieces begin … end - 1 of a formula with sums over rows.
  template <class Body>
  HWY_INLINE void run_chunks(int64_t begin, int64_t end, const Body& body) {
    const int64_t columns = call_.columns, piece_columns = OPDOCK_FORMULA_PIECE;
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t chunk = piece / call_.parts, part = piece % call_.parts;
      const int64_t first = part * piece_columns;
      const int64_t last = part + 1 == call_.parts ? columns : first + piece_columns;
      begin_sums(chunk, piece, first, last);
      int64_t row = chunk * call_.chunk_rows, stop = row + call_.chunk_rows;
      if (stop > call_.rows) stop = call_.rows;
      move_to(row);
      while (row < stop) {
        const int64_t rows = rows_of_tile(stop - row);
        if (is_flat_) {
          run_flat(row, rows, body);
        } else {
          run_tiles(row, rows, first, last, body);
        }
        row += rows;
      }
    }
  }

 private:
  // How the code sees a tensor.
  enum class How : uint8_t {
    kOne,      // as one element for each row
    kInPlace,  // where it is
    kSame,     // as copies of the row's one element
    kSum,      // as sums, to which it adds
    kCopied,
  };
  struct Tensor {
    char* data;
    const int64_t* strides;
    int64_t column, inner;  // strides
    int64_t offset;         // of the row, in elements
    char* buffer;
    double* sums;  // of the piece that is computed, from the first column on
    int size;
    How how;
  };
  static constexpr int64_t kFlat = 64, kTile = 1024, kMaxTileBytes = 256 << 10;

  const opdock_formula_tensor& at(int t) const {
    return t < form_.inputs ? call_.inputs[t] : call_.results[t - form_.inputs];
  }

  void allocate(int count) {
    int64_t bytes = 0;
    const auto take = [&](int64_t size) {
      const int64_t offset = bytes;
      bytes += (size + 63) / 64 * 64;
      return offset;
    };
    int64_t offset[kMaxTensors];
    for (int t = 0; t < count; ++t) {
      const Tensor& tensor = tensors_[t];
      offset[t] = tensor.how == How::kSame ? take(kLanes * tensor.size)
                  : tensor.how == How::kCopied || (tensor.how == How::kSum && is_flat_)
                      ? take(tile_rows_ * pitch_ * tensor.size)
                      : 0;
    }
    // The buffer has whole vectors, and is aligned for elements of any size.
    row_.kept_columns_ = (call_.columns + 15) / 16 * 16;
    const int64_t kept = take(form_.kept_bytes * row_.kept_columns_);
    char* memory = small_;
    if (bytes > static_cast<int64_t>(sizeof small_)) {
      memory_ =
          static_cast<char*>(::operator new[](static_cast<size_t>(bytes), std::align_val_t(64)));
      memory = memory_;
    }
    for (int t = 0; t < count; ++t) {
      tensors_[t].buffer = memory + offset[t];
      row_.mask_[t] = tensors_[t].how == How::kSame ? 0 : -1;
    }
    row_.kept_ = memory + kept;
    row_.columns = call_.columns;
  }

  // Returns how many of the next rows, of which there are `rows`, make a tile.
  int64_t rows_of_tile(int64_t rows) const {
    if (rows > tile_rows_) rows = tile_rows_;
    // A tile is within the last of the row dimensions; short rows are copied one by one.
    if (is_flat_ || call_.ndim == 0) return rows;
    const int64_t left = call_.size[call_.ndim - 1] - place_[call_.ndim - 1];
    return rows > left ? left : rows;
  }

  // Sets the sums of a piece to 0.
  void begin_sums(int64_t chunk, int64_t piece, int64_t first, int64_t last) {
    for (int t = form_.inputs; t < form_.inputs + form_.results; ++t) {
      Tensor& tensor = tensors_[t];
      if (tensor.how != How::kSum) continue;
      tensor.sums = reinterpret_cast<double*>(tensor.data);
      if (form_.tensors[t].has_columns) {
        tensor.sums += chunk * call_.columns;
        for (int64_t i = first; i < last; ++i) tensor.sums[i] = 0;
      } else {
        tensor.sums += piece;
        *tensor.sums = 0;
      }
    }
  }

  void move_to(int64_t row) {
    for (int t = 0; t < form_.inputs + form_.results; ++t) tensors_[t].offset = 0;
    for (int d = call_.ndim - 1; d >= 0; --d) {
      place_[d] = row % call_.size[d];
      row /= call_.size[d];
      for (int t = 0; t < form_.inputs + form_.results; ++t)
        tensors_[t].offset += place_[d] * tensors_[t].strides[d];
    }
  }
  // Goes on by so many rows, at most to the end of the last dimension.
  void advance(int64_t rows) {
    const int count = form_.inputs + form_.results;
    for (int d = call_.ndim - 1; d >= 0; --d, rows = 1) {
      for (int t = 0; t < count; ++t) tensors_[t].offset += rows * tensors_[t].strides[d];
      place_[d] += rows;
      if (place_[d] < call_.size[d]) return;
      for (int t = 0; t < count; ++t) tensors_[t].offset -= place_[d] * tensors_[t].strides[d];
      place_[d] = 0;
    }
  }

  // Copies part of a tensor to its buffer, or back.
  void copy(const Tensor& tensor, int64_t row, int64_t column, int64_t rows, int64_t columns,
            bool is_back) const {
    switch (tensor.size) {
      case 1:
        return copy_of<uint8_t>(tensor, row, column, rows, columns, is_back);
      case 2:
        return copy_of<uint16_t>(tensor, row, column, rows, columns, is_back);
      case 4:
        return copy_of<uint32_t>(tensor, row, column, rows, columns, is_back);
      default:
        return copy_of<uint64_t>(tensor, row, column, rows, columns, is_back);
    }
  }
  template <class T>
  void copy_of(const Tensor& tensor, int64_t row, int64_t column, int64_t rows, int64_t columns,
               bool is_back) const {
    T* const buffer = reinterpret_cast<T*>(tensor.buffer) + row * pitch_;
    T* const own = reinterpret_cast<T*>(tensor.data) + tensor.offset + column * tensor.column;
    if (is_back) {
      copy_elements(own, tensor.inner, tensor.column, buffer, pitch_, 1, rows, columns);
    } else {
      copy_elements(buffer, pitch_, 1, own, tensor.inner, tensor.column, rows, columns);
    }
  }

  // Computes some columns of some rows, and goes on by the rows.
  template <class Body>
  HWY_INLINE void run_tiles(int64_t row, int64_t rows, int64_t first, int64_t last,
                            const Body& body) {
    for (int64_t column = first; column < last || column == 0; column += tile_columns_) {
      const int64_t n = last - column < tile_columns_ ? last - column : tile_columns_;
      run_tile(row, rows, column, n, body);
      if (call_.columns == 0) break;
    }
    advance(rows);
  }

  template <class Body>
  HWY_INLINE void run_tile(int64_t row, int64_t rows, int64_t column, int64_t n, const Body& body) {
    const int count = form_.inputs + form_.results;
    int64_t step[kMaxTensors];  // bytes from row to row
    for (int t = 0; t < count; ++t) {
      const Tensor& tensor = tensors_[t];
      const bool is_copied = tensor.how == How::kCopied;
      if (is_copied && t < form_.inputs) copy(tensor, 0, column, rows, n, false);
      if (tensor.how == How::kSum) {
        step[t] = 0;
        row_.data_[t] = tensor.sums + (form_.tensors[t].has_columns ? column : 0);
        continue;
      }
      step[t] = (is_copied ? pitch_ : tensor.inner) * tensor.size;
      char* const element = tensor.data + tensor.offset * tensor.size;
      row_.data_[t] = is_copied                     ? tensor.buffer
                      : tensor.how == How::kInPlace ? element + column * tensor.size
                                                    : element;
    }
    row_.count = n;
    row_.column = column;
    for (int64_t r = 0; r < rows; ++r) {
      row_.number = row + r;
      if (has_same_) {
        run_with_copies(body);
      } else {
        body(row_);
      }
      for (int t = 0; t < count; ++t) row_.data_[t] = static_cast<char*>(row_.data_[t]) + step[t];
    }
    for (int t = form_.inputs; t < count; ++t)
      if (tensors_[t].how == How::kCopied) copy(tensors_[t], 0, column, rows, n, true);
  }

  // Runs a row some of whose tensors have one element, which the code reads as kLanes copies.
  template <class Body>
  HWY_INLINE void run_with_copies(const Body& body) {
    void* elements[kMaxTensors];
    for (int t = 0; t < form_.inputs; ++t) {
      const Tensor& tensor = tensors_[t];
      if (tensor.how != How::kSame) continue;
      elements[t] = row_.data_[t];
      for (int64_t k = 0; k < kLanes; ++k)
        memcpy(tensor.buffer + k * tensor.size, elements[t], static_cast<size_t>(tensor.size));
      row_.data_[t] = tensor.buffer;
    }
    body(row_);
    for (int t = 0; t < form_.inputs; ++t)
      if (tensors_[t].how == How::kSame) row_.data_[t] = elements[t];
  }

  // Several short rows as one have a sum for each element, which add_flat_sums() adds up; a sum of
  // all numbers is one.
  void* begin_flat_sums(int t, int64_t elements) const {
    if (!form_.tensors[t].has_columns) return tensors_[t].sums;
    double* const sums = reinterpret_cast<double*>(tensors_[t].buffer);
    for (int64_t i = 0; i < elements; ++i) sums[i] = 0;
    return sums;
  }
  void add_flat_sums(int64_t rows) const {
    const int64_t columns = call_.columns;
    for (int t = form_.inputs; t < form_.inputs + form_.results; ++t) {
      if (tensors_[t].how != How::kSum || !form_.tensors[t].has_columns) continue;
      const double* terms = reinterpret_cast<const double*>(tensors_[t].buffer);
      for (int64_t r = 0; r < rows; ++r, terms += columns)
        for (int64_t i = 0; i < columns; ++i) tensors_[t].sums[i] += terms[i];
    }
  }

  // Several short rows as one.
  template <class Body>
  HWY_INLINE void run_flat(int64_t row, int64_t rows, const Body& body) {
    const int count = form_.inputs + form_.results;
    const int64_t columns = call_.columns;
    int64_t start[kMaxDims], offset[kMaxTensors];
    for (int d = 0; d < call_.ndim; ++d) start[d] = place_[d];
    for (int t = 0; t < count; ++t) offset[t] = tensors_[t].offset;
    for (int64_t r = 0; r < rows; ++r, advance(1))
      for (int t = 0; t < form_.inputs; ++t)
        if (tensors_[t].how == How::kCopied) copy(tensors_[t], r, 0, 1, columns, false);
    for (int t = 0; t < count; ++t) {
      const Tensor& tensor = tensors_[t];
      row_.data_[t] =
          tensor.how == How::kCopied ? tensor.buffer : tensor.data + offset[t] * tensor.size;
      if (tensor.how == How::kSum) row_.data_[t] = begin_flat_sums(t, rows * columns);
    }
    row_.count = rows * columns;
    row_.column = 0;
    row_.number = row;
    body(row_);
    if (has_sums_) add_flat_sums(rows);
    for (int d = 0; d < call_.ndim; ++d) place_[d] = start[d];
    for (int t = 0; t < count; ++t) tensors_[t].offset = offset[t];
    for (int64_t r = 0; r < rows; ++r, advance(1))
      for (int t = form_.inputs; t < count; ++t)
        if (tensors_[t].how == How::kCopied) copy(tensors_[t], r, 0, 1, columns, true);
  }

  static constexpr int kMaxDims = OPDOCK_FORMULA_MAX_DIMS;
  const Form& form_;
  const opdock_formula_call& call_;
  bool is_flat_ = false, has_same_ = false, has_sums_ = false;
  int64_t tile_rows_ = 0, tile_columns_ = 0, pitch_ = 0;
  int64_t place_[kMaxDims] = {};
  Tensor tensors_[kMaxTensors];
  Row row_;
  char* memory_ = nullptr;
  alignas(64) char small_[2048];
};

// Calls body(row) for the rows of pieces begin … end - 1.
template <class Body>
inline void for_each_row(const Form& form, const opdock_formula_call* call, int64_t begin,
                         int64_t end, const Body& body) {
  if (begin < end) Rows(form, *call).run(begin, end, body);
}

// Calls body(row) for the rows of pieces begin … end - 1 of a formula with sums over rows.
template <class Body>
inline void for_each_row_of_chunks(const Form& form, const opdock_formula_call* call, int64_t begin,
                                   int64_t end, const Body& body) {
  if (begin < end) Rows(form, *call).run_chunks(begin, end, body);
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace formula
}  // namespace opdock
#endif  // OPDOCK_FORMULA_ROWS_HPP_
