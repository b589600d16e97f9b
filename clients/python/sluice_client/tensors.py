"""Tensors of the protocol: names, shapes and little-endian bytes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import islice
from typing import Any, Iterable, Iterator, Sequence, Union

# The struct format of an element of each datatype of fixed size. BF16 is the upper half of an FP32.
_FORMATS = {
    "BOOL": "?",
    "INT8": "b",
    "UINT8": "B",
    "INT16": "h",
    "UINT16": "H",
    "INT32": "i",
    "UINT32": "I",
    "INT64": "q",
    "UINT64": "Q",
    "FP16": "e",
    "BF16": "H",
    "FP32": "f",
    "FP64": "d",
}
DATATYPES = (*_FORMATS, "BYTES")

Value = Union[bool, int, float, bytes]


def element_bytes(datatype: str) -> int:
    """Returns the size of an element, or 0 for BYTES, whose elements differ in size."""
    return struct.calcsize("<" + _FORMATS[datatype]) if datatype != "BYTES" else 0


def check_unicode(where: str, text: str) -> None:
    """Raises ValueError if a text has an unpaired surrogate, which UTF-8 cannot represent."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} is not valid Unicode: character {error.start} is an unpaired surrogate."
            ' Remove it, for example by text.encode(errors="replace").decode()') from None


_SHOWN = 3  # elements in a tensor's repr


@dataclass(frozen=True, repr=False)
class Tensor:
    """An input or output: elements in row-major order, encoded as the protocol's raw contents.

    `numpy.asarray(tensor)` or `tensor.numpy()` converts it to an array, which is read-only; only
    this needs numpy.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: bytes

    @staticmethod
    def of(name: str, datatype: str, shape: Sequence[int], values: Iterable[Any]) -> Tensor:
        """Returns a tensor of `values`, one for each element. BYTES elements may be str.

        Raises ValueError if a value does not fit the datatype, or if the number of values does not
        match the shape.
        """
        elements = list(values)
        if len(elements) != math.prod(shape):
            raise ValueError(
                f"tensor {name}: {len(elements)} values do not fit the shape {list(shape)}"
            )
        return Tensor(name, datatype, tuple(shape), _encode(name, datatype, elements))

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        """Returns the size of the first dimension."""
        return self.shape[0]

    def values(self) -> list[Value]:
        """Returns the elements in row-major order. BYTES elements are bytes."""
        if self.datatype == "BYTES":
            return list(self._byte_strings())
        values = struct.unpack(f"<{self.size}{_FORMATS[self.datatype]}", self.raw)
        if self.datatype == "BF16":
            return list(
                struct.unpack(f"<{self.size}f", struct.pack(f"<{self.size}I",
                                                            *(v << 16 for v in values)))
            )
        return list(values)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"<{type(self).__name__} {self.name}: {self.datatype} {shape}, {self._first()}>"

    def _first(self) -> str:
        """Returns the first elements as text."""
        count = min(self.size, _SHOWN)
        if self.datatype == "BYTES":
            values: list[Value] = list(islice(self._byte_strings(), count))
        else:
            first = self.raw[: count * element_bytes(self.datatype)]
            values = Tensor(self.name, self.datatype, (count,), first).values()
        shown = [f"{v:.6g}" if isinstance(v, float) else repr(v)[:40] for v in values]
        return f"[{', '.join([*shown, *['...'] * (self.size > count)])}]"

    def row_bytes(self, row: int) -> bytes:
        """Returns the bytes of one row. Requires a datatype other than BYTES."""
        size = element_bytes(self.datatype) * math.prod(self.shape[1:])
        return self.raw[row * size : (row + 1) * size]

    def rows(self) -> list[Tensor]:
        """Returns a tensor for each row. Requires a datatype other than BYTES."""
        return [Tensor(self.name, self.datatype, self.shape[1:], self.row_bytes(row))
                for row in range(len(self))]

    def first(self, count: int) -> Tensor:
        """Returns the first `count` rows. Requires a datatype other than BYTES."""
        size = element_bytes(self.datatype) * math.prod(self.shape[1:])
        shape = (count, *self.shape[1:])
        return Tensor(self.name, self.datatype, shape, self.raw[: count * size])

    def __getitem__(self, index: int) -> Any:
        """Returns a row as a tensor, or an element of a tensor of one dimension."""
        if not hasattr(index, "__index__"):
            raise TypeError(f"a tensor is indexed by one integer, not {index!r}; use rows(),"
                            " tolist(), or numpy.asarray(tensor)")
        count, shape = len(self), self.shape[1:]
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of range for {count} rows")
        at = index % count
        if self.datatype == "BYTES":
            size = math.prod(shape)
            values = self.values()[at * size : (at + 1) * size]
            return Tensor.of(self.name, self.datatype, shape, values) if shape else values[0]
        row = Tensor(self.name, self.datatype, shape, self.row_bytes(at))
        return row if shape else row.values()[0]

    def __iter__(self) -> Iterator[Any]:
        """Yields the rows as tensors, or the elements of a tensor of one dimension."""
        return map(self.__getitem__, range(len(self)))

    def tolist(self) -> list[Any]:
        """Returns the elements as nested lists, one level for each dimension."""
        nested: list[Any] = self.values()
        for dimension in range(len(self.shape) - 1, 0, -1):
            size, rows = self.shape[dimension], math.prod(self.shape[:dimension])
            nested = [nested[i * size : (i + 1) * size] for i in range(rows)]
        return nested

    def _calculate(self, other: Any) -> Any:
        if hasattr(other, "__array__") and not isinstance(other, Tensor):
            return NotImplemented  # numpy calculates with it.
        raise TypeError("a tensor holds bytes; calculate with numpy.asarray(tensor)")

    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = _calculate

    def numpy(self) -> Any:
        """Returns numpy.asarray(self), an array that is read-only."""
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy

        if self.datatype in ("BYTES", "BF16"):
            kind = numpy.object_ if self.datatype == "BYTES" else numpy.float32
            array = numpy.empty(self.size, kind)
            array[:] = self.values()
        else:
            array = numpy.frombuffer(self.raw, "<" + _FORMATS[self.datatype])
        array = array.reshape(self.shape)
        if dtype is not None:
            array = array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def _byte_strings(self) -> Iterator[Value]:
        at = 0
        while at < len(self.raw):
            (size,) = struct.unpack_from("<I", self.raw, at)
            yield self.raw[at + 4 : at + 4 + size]
            at += 4 + size


def _encode(name: str, datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        for i, value in enumerate(values):
            if isinstance(value, str):
                check_unicode(f"{name} [{i}]", value)
        elements = [v.encode() if isinstance(v, str) else bytes(v) for v in values]
        return b"".join(struct.pack("<I", len(each)) + each for each in elements)
    if datatype not in _FORMATS:
        raise ValueError(f"tensor {name}: unknown datatype {datatype!r}")
    try:
        if datatype == "BF16":
            # Rounds to nearest, ties to even.
            bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
            values = [_upper_half(each) for each in bits]
        return struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"tensor {name}: a value is not a valid {datatype}: {error}") from None


def _upper_half(bits: int) -> int:
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40  # a NaN stays one
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
