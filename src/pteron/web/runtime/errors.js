// The errors, in the same tree as in Python.

export class PteronError extends Error {}
/** A file is damaged, or not what it claims to be. */
export class FormatError extends PteronError {}
/** The browser or the adapter lacks something that the program needs. */
export class UnsupportedError extends PteronError {}
/** The inputs of a call do not fit the program. Nothing has changed: the next good call works. */
export class InputError extends PteronError {}
/** A buffer is larger than the adapter allows, or than its free memory. */
export class OutOfMemory extends PteronError {}
/** There is no usable adapter, or it failed. */
export class DeviceError extends PteronError {}
/** The GPU of a running program was lost. */
export class DeviceLost extends DeviceError {}

// Not the names of the classes themselves: a bundler may shorten them.
for (const [name, kind] of Object.entries({ PteronError, FormatError, UnsupportedError, InputError, OutOfMemory, DeviceError, DeviceLost })) {
  kind.prototype.name = name;
}
