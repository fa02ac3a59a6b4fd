// Compiles every shader of a JSON list of texts; prints a JSON list with null or the error of each.
// Dawn's null backend parses and validates all there is, and needs no GPU. The device has WebGPU's
// default limits, so a kernel that needs more than the portable floor is refused as well.
import { readFileSync } from "node:fs";
import { create } from "webgpu";

const gpu = create(["backend=null"]); // kept: devices do not outlive it
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: ["subgroups", "shader-f16"] });

async function error(text) {
  // naga takes subgroups for granted; the language asks for this. No new line: numbers of lines stay.
  const code = /\bsubgroup/.test(text) ? `enable subgroups; ${text}` : text;
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code });
  device.createComputePipeline({ layout: "auto", compute: { module } });
  return (await device.popErrorScope())?.message ?? null;
}

const errors = [];
for (const text of JSON.parse(readFileSync(process.argv[2], "utf8"))) errors.push(await error(text));
process.stdout.write(JSON.stringify(errors), () => process.exit(0));
