// Runs a frozen language model on a GPU that only counts. So what is measured is the JavaScript of pteron.js.
// node frozen_step.mjs ADDRESS_OF_SITE STEPS

const [address, steps] = [process.argv[2], Number(process.argv[3])];
const made = { buffers: 0, pipelines: 0, groups: 0, dispatches: 0, submits: 0 };

Object.assign(globalThis, {
  GPUBufferUsage: {}, GPUMapMode: {}, GPUShaderStage: {}, GPUOutOfMemoryError: class {},
});

const mapped = new ArrayBuffer(1 << 22);
const pass = { setPipeline() {}, setBindGroup() {}, dispatchWorkgroups() { made.dispatches++; }, end() {} };
const encoder = { beginComputePass: () => pass, copyBufferToBuffer() {}, clearBuffer() {}, finish: () => ({}) };

function buffer(size) {
  made.buffers++;
  return { size, mapAsync: async () => {}, getMappedRange: (start, count) => mapped.slice(start, start + count), unmap() {}, destroy() {} };
}

const device = {
  lost: new Promise(() => {}), addEventListener() {}, pushErrorScope() {}, popErrorScope: async () => null, destroy() {},
  queue: { writeBuffer() {}, submit() { made.submits++; }, onSubmittedWorkDone: async () => {} },
  createBuffer: ({ size }) => buffer(size), createCommandEncoder: () => encoder,
  createShaderModule: () => ({}), createPipelineLayout: () => ({}), createBindGroupLayout: () => ({}),
  createBindGroup() { made.groups++; return {}; },
  async createComputePipelineAsync() { made.pipelines++; return {}; },
};
const adapter = {
  features: new Set(), info: { isFallbackAdapter: false, subgroupMinSize: 4 },
  limits: { maxBufferSize: 2 ** 32, maxStorageBufferBindingSize: 2 ** 32 }, requestDevice: async () => device,
};
Object.defineProperty(globalThis, "navigator", { value: { gpu: { requestAdapter: async () => adapter } } });

const { load } = await import(process.argv[4]);
const program = await load(`${address}model.json`);
const [tokens, positions] = program.inputs.map(({ name }) => name);
const step = (position) => program.run({
  [tokens]: { data: Int32Array.of(1), shape: [1, 1] },
  [positions]: { data: Int32Array.of(position), shape: [1] },
}, { lastRow: true });

for (let i = 0; i < 50; i++) await step(i);
const before = { ...made }, cpu = process.cpuUsage();
for (let i = 0; i < steps; i++) await step(50 + i);
const { user, system } = process.cpuUsage(cpu);
console.log(JSON.stringify({
  cpu_ms: (user + system) / 1000 / steps,
  dispatches: (made.dispatches - before.dispatches) / steps,
  made: { buffers: made.buffers - before.buffers, pipelines: made.pipelines - before.pipelines, groups: made.groups - before.groups },
}));
