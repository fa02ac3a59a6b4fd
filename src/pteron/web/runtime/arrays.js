// Arrays of JavaScript and their bytes on the GPU, with the checks and the words of Python's `arrays`.

import { InputError } from "./errors.js";

// How elements lie in a buffer. 16-bit floats are float32 outside.
export const STORED = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array };
const LIMITS = { int32: [-2147483648, 2147483647], int8: [-128, 127], uint8: [0, 255], bool: [0, 1] };
// The arrays that an input of a dtype takes, besides lists of numbers.
const TAKES = {
  float64: ["Float64Array", "Float32Array"], float32: ["Float32Array"], float16: ["Float32Array", "Float16Array"], bfloat16: ["Float32Array"],
  int64: ["Int32Array", "BigInt64Array", "Int8Array", "Uint8Array", "Int16Array", "Uint16Array", "Uint32Array"],
  int32: ["Int32Array", "Int8Array", "Uint8Array", "Int16Array", "Uint16Array"], int16: ["Int16Array", "Int8Array", "Uint8Array"],
  int8: ["Int8Array"], uint8: ["Uint8Array", "Uint8ClampedArray"], bool: ["Uint8Array"],
  uint16: ["Uint16Array", "Uint8Array"], uint32: ["Uint32Array", "Uint16Array", "Uint8Array"], uint64: ["BigUint64Array", "Uint32Array", "Uint16Array", "Uint8Array"],
};

export const count = (shape) => shape.reduce((product, size) => product * size, 1);
export const tuple = (shape) => `(${shape.join(", ")})`;
export const describe = ({ name, dtype, max, dynamic, fixed }) => ({ name, dtype, shape: max, dynamic: dynamic ?? [], fixed });

/** The place of an element, as `[row, column]`. */
export function place(index, shape) {
  const at = [];
  for (const size of [...shape].reverse()) { at.unshift(index % size); index = Math.floor(index / size); }
  return `[${at.join(", ")}]`;
}

export function readInput(port, value) {
  if (port.integer !== undefined) {
    if (typeof value === "bigint") value = Number(value);
    if (!Number.isInteger(value)) throw new InputError(`${port.name}: expected an integer, got ${typeof value === "number" ? value : typeof value}`);
    return value;
  }
  if (port.buffer === undefined) return checkConstant(port, value);
  if (value?.data?.length === undefined) throw new InputError(`${port.name}: expected {data, shape}, got ${value === null ? "null" : typeof value}`);
  const { data, shape = [data.length] } = value;
  checkShape(port, shape);
  if (data.length !== count(shape)) throw new InputError(`${port.name}: shape ${tuple(shape)} has ${count(shape)} elements, but data has ${data.length}`);
  return { shape, ...toGpu(port, data, shape) };
}

/** An input that the exporter made a constant has no effect, so it must have this value. */
function checkConstant({ name, fixed }, value) {
  const given = typeof value === "bigint" ? Number(value) : value ?? null;
  const isClose = typeof given === "number" && typeof fixed === "number" && Math.abs(given - fixed) <= 1e-6 * Math.abs(fixed);
  if (given === fixed || isClose) return null;
  throw new InputError(`${name} was exported as the constant ${fixed}, got ${given}: export the program again for another value`);
}

function checkShape({ name, max, dynamic, resizable }, shape) {
  if (shape.length !== max.length) throw new InputError(`${name}: expected ${max.length} dimensions (at most ${tuple(max)}), got shape ${tuple(shape)}`);
  shape.forEach((size, d) => {
    if (size > max[d]) {
      throw new InputError(`${name}: dimension ${d} is ${size}, but the program was exported for at most ${max[d]}: split the input, or export with a larger bound`);
    }
    if (size !== max[d] && !resizable) {
      throw new InputError(`${name}: expected shape ${tuple(max)}, got ${tuple(shape)}: the program was exported for this shape alone; dynamic_shapes can vary sizes that no weight has`);
    }
    if (size !== max[d] && !dynamic.includes(d)) throw new InputError(`${name}: dimension ${d} is ${size}, but the program runs only at ${max[d]}`);
  });
}

/** The values of an input, and its bytes in the GPU's format, padded to a multiple of four. */
function toGpu({ name, dtype, gpu }, data, shape) {
  const kind = data.constructor.name;
  if (kind !== "Array" && !TAKES[dtype].includes(kind)) throw new InputError(`${name}: expected dtype ${dtype}, got a ${kind}: pass a ${TAKES[dtype][0]}`);
  if (gpu === "int64") return { values: data, bytes: new Uint8Array(wholeNumbers(name, data, shape).buffer) };
  const values = kind.startsWith("Big") || typeof data[0] === "bigint" ? Array.from(data, Number) : data;
  const limits = LIMITS[gpu];
  if (limits && kind !== STORED[gpu].name) {
    const bad = values.findIndex((value) => !Number.isInteger(Number(value)) || value < limits[0] || value > limits[1]);
    if (bad >= 0) throw new InputError(`${name}: element ${place(bad, shape)} is ${values[bad]}, which does not fit the GPU's ${gpu}`);
  }
  const stored = new STORED[gpu](Math.ceil(data.length * STORED[gpu].BYTES_PER_ELEMENT / 4) * 4 / STORED[gpu].BYTES_PER_ELEMENT);
  if (gpu === "float16") values.forEach((value, i) => { stored[i] = halfBits(value); });
  else if (gpu === "bfloat16") values.forEach((value, i) => { stored[i] = brainBits(value); });
  else stored.set(values);
  return { values, bytes: new Uint8Array(stored.buffer) };
}

/** Integers in two words. A number of JavaScript beyond 53 bits may not be the one that was meant. */
function wholeNumbers(name, data, shape) {
  const fits = (value) => typeof value === "bigint" ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value);
  const bad = data.findIndex((value) => !fits(value));
  if (bad >= 0) throw new InputError(`${name}: element ${place(bad, shape)} is ${data[bad]}, which is no integer of 64 bits: pass a BigInt64Array`);
  return BigInt64Array.from(data, BigInt);
}

export function fromGpu(data, offset, gpu, shape) {
  const size = STORED[gpu].BYTES_PER_ELEMENT, stored = new STORED[gpu](data.slice(offset, offset + count(shape) * size));
  if (gpu === "float16") return { data: Float32Array.from(stored, halfValue), shape };
  if (gpu === "bfloat16") return { data: new Float32Array(Uint32Array.from(stored, (bits) => bits << 16).buffer), shape };
  return { data: stored, shape };
}

export function readElement([, dim, index], { values, shape }) {
  const size = dim < 0 ? values.length : shape[dim] ?? 0, at = index >= 0 ? index : index + size;
  if (at < 0 || at >= size || !values.length) {
    throw new InputError(`element ${index} of dimension ${dim} is read as an integer, but the input has shape ${tuple(shape)}`);
  }
  return Number(values[dim < 0 ? at : at * count(shape.slice(dim + 1))]);
}

const word = new Float32Array(1), bits = new Uint32Array(word.buffer);

/** The bits of a bfloat16: the upper half of a float32, rounded to nearest even. */
function brainBits(value) {
  word[0] = value;
  return Number.isNaN(word[0]) ? 0x7fc0 : (bits[0] + 0x7fff + (bits[0] >>> 16 & 1)) >>> 16;
}

/** The bits of a float16, rounded to nearest even. */
function halfBits(value) {
  word[0] = value;
  const sign = bits[0] >>> 16 & 0x8000, size = Math.abs(word[0]);
  if (Number.isNaN(size)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  // A float16 has steps of 2^-24 below 2^-14, and ten bits of fraction above.
  const exponent = Math.max(Math.floor(Math.log2(size || 1e-30)), -14), steps = roundEven(size * 2 ** (10 - exponent));
  return sign | (exponent === -14 ? steps : (exponent + 14) * 1024 + steps);
}

function roundEven(value) {
  const low = Math.floor(value), rest = value - low;
  return low + (rest > 0.5 || (rest === 0.5 && low % 2) ? 1 : 0);
}

function halfValue(half) {
  const exponent = half >>> 10 & 31, fraction = half & 1023, sign = half & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}
