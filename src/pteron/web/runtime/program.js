// A frozen program on the GPU: its buffers, pipelines and bind groups, and its calls.

import { STORED, count, describe, fromGpu, place, readElement, readInput, tuple } from "./arrays.js";
import { DeviceError, DeviceLost, InputError, OutOfMemory, PteronError } from "./errors.js";

/** A program on the GPU. After `load`, calls create no buffers and no pipelines. */
export class Program {
  #device; #plan; #buffers = []; #pipelines = []; #layouts = new Map(); #groups = new Map();
  #stateBuffers; #points = new Map(); #params; #current = null; #state; #last = Promise.resolve(); #failure = null;

  constructor(device, plan, variant) {
    this.#device = device;
    this.#plan = plan;
    this.variant = variant;
    this.method = plan.method;
    this.inputs = plan.inputs.map(describe);
    this.outputs = plan.outputs.map(describe);
    this.#stateBuffers = new Set(plan.states.map(([buffer]) => buffer));
    for (const point of plan.points) this.#points.set(point.at.join(), point);
    device.lost.then(({ reason, message }) => {
      this.#failure ??= new DeviceLost(`call: the GPU was lost: ${message || reason}: load the program again`);
    });
    device.addEventListener("uncapturederror", ({ error }) => {
      this.#failure ??= error instanceof GPUOutOfMemoryError ? new OutOfMemory(`the GPU has no memory left: ${error.message}`) : new DeviceError(error.message);
    });
  }

  /** All live points: the sizes of the dynamic dimensions in order, then the integers that plans depend on. */
  get points() { return this.#plan.points.map(({ at }) => at); }

  // Steps of `load`.
  allocate() {
    const { buffers, params, staging, constants } = this.#plan;
    buffers.forEach((size, id) => {
      if (!this.#stateBuffers.has(id)) this.#buffers[id] = this.#buffer(size, id === params ? "uniform" : staging.includes(id) ? "staging" : "storage");
    });
    this.#params = new Uint8Array(buffers[params]);
    const view = new DataView(this.#params.buffer);
    for (const [offset, value] of constants) view.setInt32(offset, value, true);
    this.#device.queue.writeBuffer(this.#buffers[params], 0, this.#params);
  }

  #buffer(size, kind) {
    const usage = { storage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
      uniform: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST, staging: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }[kind];
    return this.#device.createBuffer({ size, usage });
  }

  /** Write a part of the stream of weights, which begins at `place`, to the buffers that it belongs to. */
  fill(spans, place, data) {
    spans.forEach(([start, nbytes], number) => {
      const first = Math.max(start, place), end = Math.min(start + nbytes, place + data.length);
      if (first < end) this.#device.queue.writeBuffer(this.#buffers[this.#plan.weights[number]], first - start, data, first - place, end - first);
    });
  }

  async compile(onPipeline) {
    const device = this.#device;
    await Promise.all(this.#plan.pipelines.map(async ({ text, label, bindings }, number) => {
      const module = device.createShaderModule({ code: text, label });
      const layout = device.createPipelineLayout({ bindGroupLayouts: [this.#layout(bindings)] });
      try {
        this.#pipelines[number] = await device.createComputePipelineAsync({ layout, label, compute: { module } });
      } catch (error) {
        throw new DeviceError(`kernel ${label} cannot be compiled: ${error.message}`);
      }
      onPipeline();
    }));
  }

  #layout(bindings) {
    const key = bindings.join();
    if (!this.#layouts.has(key)) {
      const types = { read: "read-only-storage", read_write: "storage", uniform: "uniform" };
      const entries = bindings.map((kind, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: types[kind] } }));
      this.#layouts.set(key, this.#device.createBindGroupLayout({ entries }));
    }
    return this.#layouts.get(key);
  }

  bind() {
    this.#plan.groups.forEach((group, id) => {
      if (!this.#usesState(group)) this.#groups.set(id, this.#group(group, this.#buffers));
    });
    this.#state = this.newState();
  }

  #usesState(group) {
    return group.some((buffer, place) => place % 3 === 1 && this.#stateBuffers.has(buffer));
  }

  #group([pipeline, ...places], buffers) {
    const entries = [];
    for (let i = 0; i < places.length; i += 3) {
      const [buffer, offset, size] = places.slice(i, i + 3);
      entries.push({ binding: i / 3, resource: { buffer: buffers[buffer], offset, size } });
    }
    return this.#device.createBindGroup({ layout: this.#layout(this.#plan.pipelines[pipeline].bindings), entries });
  }

  /** A new state (KV caches) for the same weights. Pass it to `run`. */
  newState() {
    const buffers = [...this.#buffers], own = [];
    for (const [id, pristine] of this.#plan.states) {
      buffers[id] = this.#buffer(this.#plan.buffers[id], "storage");
      own.push({ buffer: buffers[id], pristine: pristine === null ? null : this.#buffers[pristine] });
    }
    const groups = new Map(this.#groups);
    this.#plan.groups.forEach((group, id) => { if (!groups.has(id)) groups.set(id, this.#group(group, buffers)); });
    return new State(this, this.#device, own, buffers, groups);
  }

  /** Set the default state back to its first contents. */
  reset() { this.#state.reset(); }

  /**
   * Run the program at the shapes of the inputs. Calls run one after another.
   * @param {Record<string, import("./pteron.js").Input>} inputs
   * @param {import("./pteron.js").RunOptions} [options]
   */
  run(inputs, options = {}) {
    const call = this.#last.then(() => this.#run(inputs, options));
    this.#last = call.catch(() => {});
    return call;
  }

  async #run(inputs, { state = this.#state, lastRow = false }) {
    this.#check();
    if (!state.belongsTo(this)) throw new InputError("the state is closed, or belongs to another program: make one with program.newState()");
    const given = this.#read(inputs), integers = this.#integers(given), point = this.#find(given, integers);
    this.#checkRanges(point, given, integers);
    this.#writeParams(point, integers);
    this.#plan.inputs.forEach((port, i) => {
      if (port.buffer !== undefined && given[i].bytes.length) this.#device.queue.writeBuffer(state.buffers[port.buffer], 0, given[i].bytes);
    });
    const { reads, nbytes } = this.#reads(point, lastRow), staging = this.#buffers[this.#plan.staging[0]];
    const encoder = this.#device.createCommandEncoder();
    this.#encode(encoder, state.commands(point, (...of) => this.#commands(...of)));
    for (const read of reads) if (read.nbytes) encoder.copyBufferToBuffer(state.buffers[read.buffer], read.source, staging, read.place, read.nbytes);
    this.#device.queue.submit([encoder.finish()]);
    let data = new ArrayBuffer(0);
    if (nbytes) {
      try {
        await staging.mapAsync(GPUMapMode.READ, 0, nbytes);
      } catch (error) {
        await this.#device.queue.onSubmittedWorkDone().catch(() => {});  // a lost device is reported before it
        this.#check();
        throw new DeviceError(`the result cannot be read: ${error.message}`);
      }
      data = staging.getMappedRange(0, nbytes).slice(0);
      staging.unmap();
    }
    this.#check();
    return this.#outputs(point, integers, reads, data);
  }

  #check() { if (this.#failure) throw this.#failure; }

  #encode(encoder, commands) {
    const pass = encoder.beginComputePass();
    let last = null;
    for (const { pipeline, group, x, y, z } of commands) {
      if (pipeline !== last) pass.setPipeline(last = pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(x, y, z);
    }
    pass.end();
  }

  #commands({ launches: [first, end] }, groups) {
    const { launches, grids, sites, groups: bound } = this.#plan, commands = [];
    for (let i = 3 * first; i < 3 * end; i += 3) {
      const [, group] = sites[launches[i]], [x, y, z] = grids.subarray(3 * launches[i + 2]);
      commands.push({ pipeline: this.#pipelines[bound[group][0]], group: groups.get(group), x, y, z });
    }
    return commands;
  }

  /** Write what differs from the last call: all parameters of another point, and the integers that move. */
  #writeParams(point, integers) {
    const { launches, sites, blocks, blockBytes, params } = this.#plan, buffer = this.#buffers[params], view = new DataView(this.#params.buffer);
    if (point !== this.#current) {
      for (let i = 3 * point.launches[0]; i < 3 * point.launches[1]; i += 3) {
        const block = launches[i + 1];
        this.#params.set(blockBytes.subarray(blocks[block], blocks[block + 1]), sites[launches[i]][0]);
      }
      for (const [slot, value] of point.derived) view.setInt32(slot, value, true);
    }
    this.#plan.integers.forEach(({ slot }, i) => {
      if (slot === null) return;
      view.setInt32(slot, integers[i], true);
      if (point === this.#current) this.#device.queue.writeBuffer(buffer, slot, this.#params, slot, 4);
    });
    if (point !== this.#current) this.#device.queue.writeBuffer(buffer, 0, this.#params);
    this.#current = point;
  }

  // -- inputs ---------------------------------------------------------------------------------------

  #read(inputs) {
    const ports = this.#plan.inputs, names = Object.keys(inputs);
    if (names.length !== ports.length || !ports.every(({ name }) => name in inputs)) {
      const wanted = this.inputs.map(({ name, dtype, shape }) => `${name}: ${dtype}${shape ? `[${shape.join(", ")}]` : ""}`).join(", ");
      throw new InputError(`method '${this.method}' takes ${ports.length} inputs (${wanted}), got ${names.join(", ") || "none"}`);
    }
    return ports.map((port) => readInput(port, inputs[port.name]));
  }

  #integers(given) {
    const integers = this.#plan.integers.map(({ element }) => element ? readElement(element, given[element[0]]) : 0);
    this.#plan.inputs.forEach((port, i) => { if (port.integer !== undefined) integers[port.integer] = given[i]; });
    return integers;
  }

  #find(given, integers) {
    const at = [];
    this.#plan.inputs.forEach((port, i) => port.dynamic?.forEach((dim) => at.push(given[i].shape[dim])));
    this.#plan.integers.forEach(({ planning }, i) => { if (planning) at.push(integers[i]); });
    const point = this.#points.get(at.join());
    if (point) return point;
    const { inputs, integers: known } = this.#plan;
    const shapes = inputs.map(({ name, buffer }, i) => `${name} ${buffer === undefined ? given[i] : tuple(given[i].shape)}`);
    const elements = known.flatMap(({ element, planning }, i) => planning && element ? [`${inputs[element[0]].name}[${element[2]}] = ${integers[i]}`] : []);
    throw new InputError(`there is no plan for ${[...shapes, ...elements].join(", ")}: the sizes do not fit together, or the program was frozen without them (pteron web --live)`);
  }

  #checkRanges({ ranges, contents }, given, integers) {
    const { texts, inputs } = this.#plan;
    for (const [integer, low, high, text] of ranges) {
      if (integers[integer] < low || integers[integer] > high) throw new InputError(texts[text].replaceAll("{value}", integers[integer]));
    }
    for (const value of integers) {
      if (value !== (value | 0)) throw new InputError(`an integer is ${value}, but kernels read it as a 32-bit integer`);
    }
    for (const [input, low, high, text] of contents) {
      const { values, shape } = given[input], bad = values.findIndex((value) => value < low || value > high);
      if (bad >= 0) throw new InputError(`${inputs[input].name}: element ${place(bad, shape)} is ${values[bad]}, but ${texts[text]} must lie in ${low}..${high}`);
    }
  }

  // -- outputs --------------------------------------------------------------------------------------

  /** Which bytes of which buffers are read. Copies begin and end at multiples of four bytes. */
  #reads(point, lastRow) {
    let place = 0, tensor = 0;
    const reads = [], add = (buffer, shape, wanted, size) => {
      const end = count(shape) * size, start = end - count(wanted) * size, source = start & ~3;
      const nbytes = end ? (end - source + 3) & ~3 : 0;
      reads.push({ buffer, shape: wanted, source, place, nbytes, skip: start - source });
      place += (nbytes + 7) & ~7;
    };
    for (const port of this.#plan.outputs) {
      if (port.buffer === undefined) continue;
      const shape = point.shapes[tensor++];
      add(port.buffer, shape, lastRow && count(shape) ? shape.slice(-1) : shape, STORED[port.gpu].BYTES_PER_ELEMENT);
      if (port.count !== undefined) add(port.count, [1], [1], 4);
    }
    return { reads, nbytes: place };
  }

  #outputs(point, integers, reads, data) {
    const outputs = {}, next = reads.values();
    let integer = 0;
    for (const port of this.#plan.outputs) {
      if (port.integer !== undefined) {
        const own = point.integers[integer++];
        outputs[port.name] = port.integer < 0 ? own : integers[port.integer];
      } else if (port.buffer === undefined) outputs[port.name] = port.fixed;
      else {
        const { shape, place, skip } = next.next().value, made = fromGpu(data, place + skip, port.gpu, shape);
        if (port.count !== undefined) {
          made.shape = [new Int32Array(data, next.next().value.place, 1)[0], ...shape.slice(1)];
          made.data = made.data.subarray(0, count(made.shape));
        }
        outputs[port.name] = made;
      }
    }
    return outputs;
  }

  /** Free everything on the GPU. */
  close() {
    this.#failure ??= new PteronError("the program is closed");
    this.#device.destroy();
  }
}

/** The tensors of a program that calls change, such as KV caches. */
export class State {
  #program; #device; #own; #groups; #commands = new Map();

  constructor(program, device, own, buffers, groups) {
    this.#program = program;
    this.#device = device;
    this.#own = own;
    this.buffers = buffers;
    this.#groups = groups;
    this.reset();
  }

  belongsTo(program) { return this.#program === program; }

  commands(point, make) {
    if (!this.#commands.has(point)) this.#commands.set(point, make(point, this.#groups));
    return this.#commands.get(point);
  }

  /** Set it back to its first contents. */
  reset() {
    if (!this.#own.length) return;
    const encoder = this.#device.createCommandEncoder();
    for (const { buffer, pristine } of this.#own) {
      if (pristine) encoder.copyBufferToBuffer(pristine, 0, buffer, 0, buffer.size);
      else encoder.clearBuffer(buffer);
    }
    this.#device.queue.submit([encoder.finish()]);
  }

  /** Free its memory. */
  close() {
    this.#program = null;
    for (const { buffer } of this.#own) buffer.destroy();
  }
}
