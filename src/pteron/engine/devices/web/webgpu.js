// The part of a device that runs in JavaScript. Python knows buffers, pipelines and bind groups by integers.
// The value of this script is a function that opens a GPU.
(() => {
  const LIMITS = [
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxUniformBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
    "maxUniformBuffersPerShaderStage",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
    "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupStorageSize",
    "maxComputeWorkgroupsPerDimension",
    "minUniformBufferOffsetAlignment",
    "minStorageBufferOffsetAlignment",
  ];
  const FEATURES = ["shader-f16", "subgroups"];
  const BINDING_TYPES = { read: "read-only-storage", read_write: "storage", uniform: "uniform" };
  const USAGES = {
    storage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    uniform: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    staging: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  };

  const kindOf = (error) => (error instanceof GPUOutOfMemoryError ? "memory" : "error");

  class WebGpu {
    constructor(adapter, device) {
      this.device = device;
      this.things = []; // buffers, pipelines and bind groups, by number
      this.free = []; // numbers that can be used again
      this.compiling = new Set(); // promises of pipelines
      this.faults = []; // errors that Python has not been told yet
      this.lost = undefined; // the reason, if the GPU was lost
      const { vendor, architecture, device: model, description } = adapter.info;
      this.name = description || model || [vendor, architecture].filter(Boolean).join(" ") || "WebGPU";
      this.isSoftware = Boolean(adapter.info.isFallbackAdapter ?? adapter.isFallbackAdapter);
      this.smallestSubgroup = adapter.info.subgroupMinSize ?? 0;
      device.lost.then(({ reason, message }) => (this.lost = message || reason));
      this.openScopes();
    }

    limit(name) {
      return this.device.limits[name];
    }

    has(feature) {
      return this.device.features.has(feature);
    }

    // -- things ---------------------------------------------------------------------------------

    keep(thing) {
      const id = this.free.pop() ?? this.things.length;
      this.things[id] = thing;
      return id;
    }

    drop(id) {
      this.things[id] = undefined;
      this.free.push(id);
    }

    buffer(size, usage, label) {
      return this.keep(this.device.createBuffer({ size, usage: USAGES[usage], label }));
    }

    destroy(id) {
      this.things[id].destroy();
      this.drop(id);
    }

    // A pipeline can be used after `settle`. Its layout can be used at once, so bind groups need not wait.
    pipeline(code, label, kinds) {
      const entries = kinds.map((kind, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: BINDING_TYPES[kind] },
      }));
      const layout = this.device.createBindGroupLayout({ label, entries });
      const thing = { layout, pipeline: undefined };
      const compiled = this.compile(thing, code, label).finally(() => this.compiling.delete(compiled));
      this.compiling.add(compiled);
      return this.keep(thing);
    }

    async compile(thing, code, label) {
      const layout = this.device.createPipelineLayout({ label, bindGroupLayouts: [thing.layout] });
      this.device.pushErrorScope("validation"); // the errors of the text are reported below, with lines
      const module = this.device.createShaderModule({ code, label });
      this.device.popErrorScope().catch(() => {});
      try {
        const compute = { module, entryPoint: "main" };
        thing.pipeline = await this.device.createComputePipelineAsync({ label, layout, compute });
      } catch (error) {
        const { messages } = await module.getCompilationInfo();
        const wrong = messages.filter(({ type }) => type === "error");
        const lines = wrong.map(({ lineNum, message }) => `line ${lineNum}: ${message}`);
        this.fail("error", `kernel ${label}: ${lines.join("; ") || error.message}`);
      }
    }

    // `places` has three numbers for each binding: a buffer, an offset, and a number of bytes.
    bindGroup(pipeline, places, label) {
      const entries = [];
      for (let i = 0; i < places.length; i += 3) {
        const resource = { buffer: this.things[places[i]], offset: places[i + 1], size: places[i + 2] };
        entries.push({ binding: i / 3, resource });
      }
      return this.keep(this.device.createBindGroup({ label, layout: this.things[pipeline].layout, entries }));
    }

    // -- work -----------------------------------------------------------------------------------

    // `data` is a buffer of Python, whose bytes are copied before the call returns.
    write(id, offset, data) {
      const bytes = data.getBuffer("u8");
      try {
        this.device.queue.writeBuffer(this.things[id], offset, bytes.data);
      } finally {
        bytes.release();
      }
    }

    // `parts` has three numbers for each part: a buffer, an offset, and a number of bytes.
    clear(parts) {
      const encoder = this.device.createCommandEncoder();
      for (let i = 0; i < parts.length; i += 3) {
        encoder.clearBuffer(this.things[parts[i]], parts[i + 1], parts[i + 2]);
      }
      this.device.queue.submit([encoder.finish()]);
    }

    // Copies have five numbers: source, offset, target, offset, bytes. Commands have five: pipeline, bind
    // group, and the grid. The result is a promise: it is fulfilled when all staging buffers among the targets
    // are mapped, with an error or undefined.
    submit(before, commands, after) {
      const encoder = this.device.createCommandEncoder();
      this.copy(encoder, before);
      if (commands.length) {
        const pass = encoder.beginComputePass();
        let present = -1;
        for (let i = 0; i < commands.length; i += 5) {
          if (commands[i] !== present) {
            present = commands[i];
            pass.setPipeline(this.things[present].pipeline);
          }
          pass.setBindGroup(0, this.things[commands[i + 1]]);
          pass.dispatchWorkgroups(commands[i + 2], commands[i + 3], commands[i + 4]);
        }
        pass.end();
      }
      const staged = this.copy(encoder, after);
      this.device.queue.submit([encoder.finish()]);
      const checked = this.check();
      const mapped = [...staged].map((buffer) => buffer.mapAsync(GPUMapMode.READ).catch(() => {}));
      return Promise.all([checked, ...mapped]).then(() => this.nextFault());
    }

    copy(encoder, copies) {
      const staged = new Set();
      for (let i = 0; i < copies.length; i += 5) {
        const target = this.things[copies[i + 2]];
        if (target.usage & GPUBufferUsage.MAP_READ) {
          if (target.mapState !== "unmapped") target.unmap(); // of a result that nobody has read
          staged.add(target);
        }
        encoder.copyBufferToBuffer(this.things[copies[i]], copies[i + 1], target, copies[i + 3], copies[i + 4]);
      }
      return staged;
    }

    isMapped(id) {
      return this.things[id].mapState === "mapped";
    }

    mapped(id, nbytes) {
      return new Uint8Array(this.things[id].getMappedRange(0, nbytes));
    }

    unmap(id) {
      this.things[id].unmap();
    }

    async settle() {
      await Promise.all(this.compiling);
      await this.device.queue.onSubmittedWorkDone().catch(() => {}); // fails if the device is lost
      await this.check();
      return this.nextFault();
    }

    // -- errors ---------------------------------------------------------------------------------

    // Every operation is inside two scopes. `check` closes them, and opens new ones.
    openScopes() {
      this.device.pushErrorScope("validation");
      this.device.pushErrorScope("out-of-memory");
    }

    async check() {
      const closed = [this.device.popErrorScope(), this.device.popErrorScope()];
      this.openScopes();
      for (const scope of closed) {
        const error = await scope.catch(() => {}); // a lost device has no scopes
        if (error) this.fail(kindOf(error), error.message);
      }
    }

    fail(kind, message) {
      this.faults.push({ kind, message });
    }

    // The first error since the last one that was told. The others are mostly consequences of it.
    nextFault() {
      if (this.lost !== undefined) return { kind: "lost", message: this.lost };
      const [first] = this.faults.splice(0);
      return first;
    }

    close() {
      this.device.destroy();
    }
  }

  return async (powerPreference) => {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference });
    if (!adapter) return undefined;
    const requiredFeatures = FEATURES.filter((feature) => adapter.features.has(feature));
    const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
    const device = await adapter.requestDevice({ label: "pteron", requiredFeatures, requiredLimits });
    return new WebGpu(adapter, device);
  };
})()
