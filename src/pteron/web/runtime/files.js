// The files of a frozen program: from the network, or from the browser's cache.

import { FormatError } from "./errors.js";

const FORMAT = 2;

/** The description of a program. Without a network, the one of the last visit. */
export async function readManifest(base, cache, signal) {
  let response;
  try {
    response = await fetch(base, { signal });
    if (response.ok) await cache?.put(base.href, response.clone()).catch(() => {});
  } catch (error) {
    response = await cache?.match(base.href);
    if (!response) throw error;
  }
  if (!response.ok) throw new FormatError(`${base.href}: the server answered with status ${response.status}`);
  const manifest = await response.json().catch(() => ({}));
  if (manifest.format !== FORMAT) {
    throw new FormatError(`${base.href}: expected a program of format ${FORMAT}, got ${manifest.format}: freeze it again`);
  }
  return manifest;
}

/** The files of a program. Their names change with their contents, so what is in the cache is right. */
export class Files {
  constructor(base, cache, signal, onBytes) { Object.assign(this, { base, cache, signal, onBytes }); }

  /** What `parse` makes of the bytes of a file. A file that it refuses is not kept. */
  async read({ file, nbytes }, parse) {
    const url = new URL(file, this.base).href;
    const known = await this.cache?.match(url);
    const response = known ?? await fetch(url, { signal: this.signal });
    if (!response.ok) throw new FormatError(`${url}: the server answered with status ${response.status}`);
    const data = await this.#bytes(response, nbytes);
    try {
      const parsed = await parse(data);
      // A cache that is full is no reason to fail: the next visit loads the file again.
      if (!known) await this.cache?.put(url, new Response(data)).catch(() => {});
      return parsed;
    } catch (error) {
      if (known) await this.cache.delete(url);
      throw error;
    }
  }

  async #bytes(response, nbytes) {
    let data = new Uint8Array(nbytes), length = 0;
    for (const reader = response.body.getReader(); ;) {
      const { value, done } = await reader.read();
      if (done) return data.subarray(0, length);
      if (length + value.length > data.length) {
        const longer = new Uint8Array(2 * (length + value.length));
        longer.set(data);
        data = longer;
      }
      data.set(value, length);
      length += value.length;
      this.onBytes(value.length);
    }
  }

  /** Remove files of earlier versions of the program from the cache. */
  async forgetOthers(used) {
    const folder = new URL(".", this.base).href, names = new Set(used.map(({ file }) => file));
    for (const request of await this.cache?.keys() ?? []) {
      const name = request.url.startsWith(folder) ? request.url.slice(folder.length) : "";
      if (/^(plan|weights)-[^/]*\.bin$/.test(name) && !names.has(name)) await this.cache.delete(request);
    }
  }
}

/** A plan is JSON and numbers, compressed. Some web servers have decompressed it already. */
export async function readPlan(data, name) {
  if (data[0] === 0x1f && data[1] === 0x8b) {
    const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
    data = new Uint8Array(await new Response(stream).arrayBuffer().catch(() => new ArrayBuffer(0)));
  }
  const lengths = data.length < 8 ? [] : [...new Uint32Array(data.slice(0, 8).buffer)];
  if (8 + lengths.reduce((sum, n) => sum + n, 0) !== data.length) throw new FormatError(`${name} is damaged: copy the site again`);
  let place = 8;
  const [header, params] = lengths.map((length) => data.slice(place, place += length));
  return { ...JSON.parse(new TextDecoder().decode(header)), blockBytes: params };
}

export async function streamWeights({ shards }, files, write) {
  const read = ({ file, nbytes }) => files.read({ file, nbytes }, (data) => {
    if (data.length !== nbytes) throw new FormatError(`${file}: expected ${nbytes} bytes, got ${data.length}: copy the site again`);
    return data;
  });
  let place = 0, next = shards.length ? read(shards[0]) : null;
  for (let number = 0; number < shards.length; number++) {
    const data = await next;
    next = number + 1 < shards.length ? read(shards[number + 1]) : null;
    next?.catch(() => {});  // it is reported when it is awaited
    write(place, data);
    place += data.length;
  }
}
