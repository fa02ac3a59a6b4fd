// A language model: a frozen program, its tokenizer and its chat template.

import { Tokenizer } from "./vendor/tokenizers.js";
import { Detokenizer } from "./detokenizer.js";
import { Prompts } from "./prompts.js";
import { InputError, load } from "./pteron/pteron.js";
import { Sampler } from "./sampler.js";

export class LanguageModel {
  /** @param {string | URL} folder where the files of the site are */
  static async load(folder, onProgress) {
    const read = async (name) => (await fetch(new URL(name, folder))).json();
    const [facts, definition] = await Promise.all([read("language.json"), read("tokenizer.json")]);
    const program = await load(new URL("model.json", folder), { onProgress });
    return new LanguageModel(program, facts, new Tokenizer(definition, facts.special_tokens));
  }

  constructor(program, facts, tokenizer) {
    this.program = program;
    this.facts = facts;
    this.name = facts.name;
    this.tokenizer = tokenizer;
    this.prompts = new Prompts(tokenizer, facts);
    this.tokens = [];  // those in the KV caches
    const [tokens, positions] = program.inputs;
    this.names = { tokens: tokens.name, positions: positions.name, logits: program.outputs[0].name };
    // The numbers of tokens that a call may have, the largest first.
    const { low, high, step } = program.sizes[0] ?? { low: 1, high: 1, step: 1 };
    this.lengths = Array.from({ length: (high - low) / step + 1 }, (_, i) => high - i * step).filter((n) => n > 0);
  }

  /**
   * The answer to a conversation, as {text, tokens, note}.
   * @param {{signal?: AbortSignal, max_tokens?: number}} options and those of `Sampler`
   */
  async *answer(messages, options = {}) {
    const prompt = this.prompts.encode(messages), room = this.facts.context_length;
    if (!prompt.length) throw new InputError("the prompt is empty: the model needs at least one token");
    if (prompt.length > room) throw new InputError(`the prompt has ${prompt.length} tokens, but the model's context has ${room}`);
    const sampler = new Sampler(options), text = [...prompt], decoder = new Detokenizer(this.tokenizer);
    const ends = new Set(this.facts.eos_ids), most = options.max_tokens ?? Infinity;
    let logits = await this.#read(prompt, options.signal);
    for (let count = 1; ; count++) {
      options.signal?.throwIfAborted();
      const token = sampler.choose(logits, text);
      if (ends.has(token)) { yield { text: decoder.finish(), tokens: count }; return; }
      text.push(token);
      const isFull = this.tokens.length >= room;
      yield { text: decoder.push(token), tokens: count };
      if (count >= most || isFull) {
        yield { text: decoder.finish(), note: isFull ? "cut: the context is full" : "cut: the limit of tokens" };
        return;
      }
      logits = await this.#run([token]);
    }
  }

  /** Run what the KV caches do not have yet of a text, in the largest pieces that the program has plans for. */
  async #read(text, signal) {
    let known = 0;
    while (known < Math.min(this.tokens.length, text.length - 1) && this.tokens[known] === text[known]) known++;
    this.tokens.length = known;
    let logits;
    while (this.tokens.length < text.length) {
      signal?.throwIfAborted();
      const left = text.length - this.tokens.length, length = this.lengths.find((n) => n <= left);
      if (!length) throw new InputError(`the program was frozen without a plan for ${left} tokens: freeze it with --live 1 and larger sizes`);
      logits = await this.#run(text.slice(this.tokens.length, this.tokens.length + length));
    }
    return logits;
  }

  async #run(tokens) {
    const first = this.tokens.length, count = this.program.inputs[1].shape[0] === 1 ? 1 : tokens.length;
    const positions = Int32Array.from({ length: count }, (_, i) => first + i);
    const outputs = await this.program.run({
      [this.names.tokens]: { data: Int32Array.from(tokens), shape: [1, tokens.length] },
      [this.names.positions]: { data: positions, shape: [count] },
    }, { lastRow: true });
    this.tokens.push(...tokens);
    return outputs[this.names.logits].data;
  }
}
