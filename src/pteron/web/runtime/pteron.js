// Runs a program that `pteron web` has frozen, on WebGPU. No dependencies. See docs/web.md.
//
//     import { load } from "./pteron.js";
//     const program = await load("model.json", { onProgress: ({ loaded, total }) => console.log(loaded / total) });
//     const { output0 } = await program.run({ input0: { data: new Float32Array(64), shape: [1, 64] } });
//
// The types are in pteron.d.ts.

import { DeviceError, OutOfMemory, UnsupportedError } from "./errors.js";
import { Files, readManifest, readPlan, streamWeights } from "./files.js";
import { Program } from "./program.js";

export * from "./errors.js";
export { Program, State } from "./program.js";

const CACHE = "pteron";

/**
 * Load a frozen program. Weights are written to the GPU as they arrive, while pipelines compile.
 * @param {string | URL} url the address of `model.json`
 * @param {import("./pteron.js").LoadOptions} [options]
 * @returns {Promise<Program>}
 */
export async function load(url, { onProgress, cache = true, signal } = {}) {
  const base = new URL(url, globalThis.location?.href);
  const kept = cache ? await globalThis.caches?.open(CACHE).catch(() => null) : null;
  const manifest = await readManifest(base, kept, signal);
  const { adapter, variant } = await chooseVariant(manifest.variants);
  const device = await openDevice(adapter, variant);
  const progress = { loaded: 0, total: variant.plan.nbytes, compiled: 0, pipelines: 0 };
  for (const shard of manifest.shards) progress.total += shard.nbytes;
  const advance = (changes) => {
    for (const [name, more] of Object.entries(changes)) progress[name] += more;
    onProgress?.({ ...progress });
  };
  const files = new Files(base, kept, signal, (nbytes) => advance({ loaded: nbytes }));
  try {
    const plan = await files.read(variant.plan, (data) => readPlan(data, variant.plan.file));
    advance({ pipelines: plan.pipelines.length });
    const program = new Program(device, plan, variant.name);
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    program.allocate();
    await Promise.all([
      program.compile(() => advance({ compiled: 1 })),
      streamWeights(manifest, files, (place, data) => program.fill(manifest.weights, place, data)),
    ]);
    program.bind();
    const [invalid, full] = [await device.popErrorScope(), await device.popErrorScope()];
    if (full) throw new OutOfMemory(`the program does not fit the GPU: ${full.message}`);
    if (invalid) throw new DeviceError(`the GPU refuses the program: ${invalid.message}`);
    await files.forgetOthers([variant.plan, ...manifest.shards]);
    return program;
  } catch (error) {
    device.destroy();
    throw error;
  }
}

async function chooseVariant(variants) {
  if (!globalThis.navigator?.gpu) {
    throw new DeviceError("this browser has no WebGPU: use a current Chrome, Edge, Firefox or Safari, and https or localhost");
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new DeviceError("WebGPU finds no GPU adapter: check the browser's hardware acceleration");
  const isSoftware = adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false;
  const lanes = adapter.info?.subgroupMinSize ?? 0;
  const variant = variants.find((v) => v.features.every((f) => adapter.features.has(f)) && lanes >= v.lanes && (isSoftware || !v.software));
  if (!variant) {
    const wanted = variants.map((v) => `${v.name} (${v.features.join(", ") || "software adapter"})`).join(", ");
    throw new UnsupportedError(`the program was frozen for ${wanted}, and this adapter is none of them: freeze it with the variant gpu`);
  }
  return { adapter, variant };
}

async function openDevice(adapter, { features, limits }) {
  for (const [name, needed] of Object.entries(limits)) {
    if (adapter.limits[name] < needed) {
      throw new OutOfMemory(`the program needs a buffer of ${needed} bytes, but this adapter allows ${adapter.limits[name]} (${name})`);
    }
  }
  const defaults = { maxBufferSize: 268435456, maxStorageBufferBindingSize: 134217728 };
  const requiredLimits = Object.fromEntries(Object.entries(limits).filter(([name, needed]) => needed > defaults[name]));
  try {
    return await adapter.requestDevice({ requiredFeatures: features, requiredLimits, label: "pteron" });
  } catch (error) {
    throw new DeviceError(`the GPU adapter cannot be opened: ${error.message}`);
  }
}
