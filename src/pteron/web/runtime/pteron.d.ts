/** Runs a program that `pteron web` has frozen, on WebGPU. */

/** Load a frozen program. Weights are written to the GPU as they arrive, while pipelines compile. */
export function load(url: string | URL, options?: LoadOptions): Promise<Program>;

export interface LoadOptions {
  /** Called as bytes arrive and pipelines are compiled. */
  onProgress?: (progress: Progress) => void;
  /** Keep the files in the browser's cache, for visits without a network. Default: true. */
  cache?: boolean;
  /** Ends a download. */
  signal?: AbortSignal;
}

export interface Progress {
  loaded: number;
  /** Bytes of the program and its weights. */
  total: number;
  compiled: number;
  /** The number of pipelines. 0 until the program has been read. */
  pipelines: number;
}

export type Numbers =
  | Float32Array | Float64Array | Int32Array | Int16Array | Int8Array | Uint32Array | Uint16Array | Uint8Array
  | Uint8ClampedArray | BigInt64Array | BigUint64Array | ReadonlyArray<number> | ReadonlyArray<bigint>;

/** A tensor, or an integer for an input that is one. Without a shape, a tensor has one dimension. */
export type Input = { data: Numbers; shape?: readonly number[] } | number | bigint;

/** 16-bit floats are float32 here. 64-bit integers are int32, as the GPU computes them. */
export interface Tensor {
  data: Float32Array | Int32Array | Int8Array | Uint8Array;
  shape: number[];
}

export interface RunOptions {
  /** The state (KV caches) to use. Default: the program's own. */
  state?: State;
  /** Read only the last row of each output, such as the logits of the last token. */
  lastRow?: boolean;
}

export interface Port {
  name: string;
  dtype: string;
  /** The largest shape. Undefined for an integer. */
  shape?: number[];
  /** The dimensions that may be smaller. */
  dynamic: number[];
  /** The constant that the exporter made of an input. A call can only give this value. */
  fixed?: unknown;
}

/** A program on the GPU. After `load`, calls create no buffers and no pipelines. */
export class Program {
  private constructor();
  readonly method: string;
  /** The kind of device that the program runs as: "gpu", "full" or "software". */
  readonly variant: string;
  readonly inputs: Port[];
  readonly outputs: Port[];
  /** The numbers that a call chooses by the sizes of its inputs, with their ranges. */
  readonly sizes: { name: string; low: number; high: number; step: number }[];
  /** The shapes of the inputs, by name, where the numbers of `sizes` have these values. */
  shapes(values: number[]): Record<string, number[]>;
  /**
   * Run the program at the shapes of the inputs. Calls run one after another.
   * An output may also be a number: `run<{ output0: Tensor; count: number }>(inputs)`.
   */
  run<Outputs = Record<string, Tensor>>(inputs: Record<string, Input>, options?: RunOptions): Promise<Outputs>;
  /** A new state (KV caches) for the same weights. */
  newState(): State;
  /** Set the program's own state back to its first contents. */
  reset(): void;
  /** Free everything on the GPU. */
  close(): void;
}

/** The tensors that calls change, such as KV caches. */
export class State {
  private constructor();
  /** Set it back to its first contents. */
  reset(): void;
  /** Free its memory. */
  close(): void;
}

export class PteronError extends Error {}
/** A file is damaged, or not what it claims to be. */
export class FormatError extends PteronError {}
/** The browser or the adapter lacks something that the program needs. */
export class UnsupportedError extends PteronError {}
/** The inputs of a call do not fit the program. The next good call works. */
export class InputError extends PteronError {}
/** A buffer is larger than the adapter allows, or than its free memory. */
export class OutOfMemory extends PteronError {}
/** There is no usable adapter, or it failed. */
export class DeviceError extends PteronError {}
/** The GPU of a running program was lost: load the program again. */
export class DeviceLost extends DeviceError {}
