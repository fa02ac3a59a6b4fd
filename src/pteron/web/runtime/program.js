// A frozen program on the GPU: its buffers, pipelines and bind groups, and its calls.

import { STORED, count, describe, fromGpu, place, readElement, readInput } from "./arrays.js";
import { DeviceError, DeviceLost, InputError, OutOfMemory, PteronError } from "./errors.js";
import { Numbers, chosenSizes } from "./formulas.js";

// Plans at so many points are kept. A call at another point makes its plan again.
const MOST_KEPT = 256;

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
    device.lost.then(({ reason, message }) => {
      this.#failure ??= new DeviceLost(`call: the GPU was lost: ${message || reason}: load the program again`);
    });
    device.addEventListener("uncapturederror", ({ error }) => {
      this.#failure ??= error instanceof GPUOutOfMemoryError ? new OutOfMemory(`the GPU has no memory left: ${error.message}`) : new DeviceError(error.message);
    });
  }

  /** The numbers that a call chooses by its sizes: the name of each, and its range. */
  get sizes() { return this.#plan.sizes.map((size) => ({ ...size })); }

  /** The shapes of the inputs where the numbers of `sizes` have these values. */
  shapes(values) {
    const numbers = this.#numbers(values);
    return Object.fromEntries(this.#plan.inputs.filter(({ sizes }) => sizes).map(({ name, sizes }) => [name, sizes.map((size) => numbers.of(size))]));
  }

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
    const given = this.#read(inputs), chosen = [...chosenSizes(this.#plan, given), ...this.#integers(given)];
    const point = this.#find(chosen), numbers = this.#numbers(Object.assign([...point.values], chosen));
    this.#checkRanges(point, numbers);
    this.#checkContents(point, given);
    this.#writeParams(point, numbers);
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
    return this.#outputs(numbers, reads, data);
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

  #commands({ launches }, groups) {
    const { sites, groups: bound } = this.#plan;
    return launches.map(({ site, grid: [x, y, z] }) => {
      const [, group] = sites[site];
      return { pipeline: this.#pipelines[bound[group][0]], group: groups.get(group), x, y, z };
    });
  }

  /** Write what differs from the last call: all parameters of another point, and the integers that move. */
  #writeParams(point, numbers) {
    const { sites, params, derived } = this.#plan, buffer = this.#buffers[params], view = new DataView(this.#params.buffer);
    if (point !== this.#current) for (const { site, block } of point.launches) this.#params.set(block, sites[site][0]);
    for (const [slot, formula] of derived) {
      const value = numbers.of(formula);
      if (view.getInt32(slot, true) === value) continue;
      view.setInt32(slot, value, true);
      if (point === this.#current) this.#device.queue.writeBuffer(buffer, slot, this.#params, slot, 4);
    }
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
    const { inputs, integers, sizes } = this.#plan;
    const values = integers.map(({ element }) => element ? readElement(element, given[element[0]]) : 0);
    inputs.forEach((port, i) => { if (port.integer !== undefined) values[port.integer - sizes.length] = given[i]; });
    for (const value of values) {
      if (value !== (value | 0)) throw new InputError(`an integer is ${value}, but kernels read it as a 32-bit integer`);
    }
    return values;
  }

  #numbers(values) { return new Numbers(this.#plan.quotients, values); }

  /** The plan where names have these values. Integers that only kernels read do not change it. */
  #find(chosen) {
    const { sizes, integers } = this.#plan;
    const key = chosen.filter((_, i) => i < sizes.length || integers[i - sizes.length].planning).join();
    const point = this.#points.get(key) ?? this.#planAt([...chosen]);
    if (this.#points.size >= MOST_KEPT) this.#points.clear();
    this.#points.set(key, point);
    return point;
  }

  /** The case of each node that holds here, its launches, and the sizes that it gives. */
  #planAt(values) {
    const { cases, nodes, plans, texts, blocks, blockBytes, outputs } = this.#plan;
    const numbers = this.#numbers(values), launches = [], contents = [], limits = [];
    for (const choices of nodes) {
      const chosen = choices.find(([number]) => numbers.holds(cases[number].when));
      if (!chosen) throw new InputError(`there is no plan for ${this.#described(values)}: run other sizes, or the engine itself, with Pyodide`);
      const { plans: own = [], refusal, ranges = [], contents: rules = [], own: named = [] } = cases[chosen[0]];
      if (refusal !== undefined) throw new InputError(texts[refusal]);
      limits.push(...ranges.map(([integer, low, high, text]) => [integer, numbers.of(low), numbers.of(high), text]));
      for (const [name, formula] of named) values[name] = numbers.of(formula);
      contents.push(...rules.map(([input, low, high, text]) => [input, numbers.of(low), numbers.of(high), text]));
      own.forEach((number, i) => {
        const [block, varying, grid] = plans[number], sizes = grid.map((size) => numbers.of(size));
        if (sizes.includes(0)) return;
        const bytes = blockBytes.slice(blocks[block], blocks[block + 1]), view = new DataView(bytes.buffer);
        for (const [offset, isFloat, formula] of varying) {
          if (isFloat) view.setFloat32(offset, numbers.of(formula), true);
          else view.setInt32(offset, numbers.of(formula), true);
        }
        launches.push({ site: chosen[1 + i], block: bytes, grid: sizes });
      });
    }
    const distinct = (rules) => [...new Map(rules.map((rule) => [JSON.stringify(rule.slice(0, 3)), rule])).values()];
    const shapes = outputs.map(({ sizes }) => sizes?.map((size) => numbers.of(size)));
    return { values, launches, shapes, contents: distinct(contents), ranges: distinct(limits) };
  }

  #checkRanges({ ranges }, numbers) {
    for (const [integer, low, high, text] of ranges) {
      const value = numbers.of(integer);
      if (value < low || value > high) throw new InputError(this.#plan.texts[text].replaceAll("{value}", value));
    }
  }

  #described(values) {
    const { sizes, integers } = this.#plan;
    return [...sizes, ...integers].map(({ name }, i) => `${name} = ${values[i]}`).join(", ");
  }

  #checkContents({ contents }, given) {
    const { texts, inputs } = this.#plan;
    for (const [input, low, high, text] of contents) {
      const { values, shape } = given[input], bad = values.findIndex((value) => value < low || value > high);
      if (bad >= 0) throw new InputError(`${inputs[input].name}: element ${place(bad, shape)} is ${values[bad]}, but ${texts[text]} must lie in ${low}..${high}`);
    }
  }

  // -- outputs --------------------------------------------------------------------------------------

  /** Which bytes of which buffers are read. Copies begin and end at multiples of four bytes. */
  #reads(point, lastRow) {
    let place = 0;
    const reads = [], add = (buffer, shape, wanted, size) => {
      const end = count(shape) * size, start = end - count(wanted) * size, source = start & ~3;
      const nbytes = end ? (end - source + 3) & ~3 : 0;
      reads.push({ buffer, shape: wanted, source, place, nbytes, skip: start - source });
      place += (nbytes + 7) & ~7;
    };
    for (const [number, port] of this.#plan.outputs.entries()) {
      if (port.buffer === undefined) continue;
      const shape = point.shapes[number];
      add(port.buffer, shape, lastRow && count(shape) ? shape.slice(-1) : shape, STORED[port.gpu].BYTES_PER_ELEMENT);
      if (port.count !== undefined) add(port.count, [1], [1], 4);
    }
    return { reads, nbytes: place };
  }

  #outputs(numbers, reads, data) {
    const outputs = {}, next = reads.values();
    for (const port of this.#plan.outputs) {
      if (port.number !== undefined) outputs[port.name] = numbers.of(port.number);
      else if (port.buffer === undefined) outputs[port.name] = port.fixed;
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
  #program; #device; #own; #groups; #commands = new WeakMap();

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
