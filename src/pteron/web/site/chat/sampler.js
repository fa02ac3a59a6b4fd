// Chooses the next token from logits, with the same filters in the same order as `pteron.llm.sampling`.

import { InputError } from "./pteron/pteron.js";

/** A source of random numbers in [0, 1) that a seed determines (mulberry32). */
function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = state + 0x6d2b79f5 | 0;
    let mixed = Math.imul(state ^ state >>> 15, 1 | state);
    mixed = mixed + Math.imul(mixed ^ mixed >>> 7, 61 | mixed) ^ mixed;
    return ((mixed ^ mixed >>> 14) >>> 0) / 4294967296;
  };
}

export function argmax(logits) {
  let best = 0;
  for (let token = 1; token < logits.length; token++) if (logits[token] > logits[best]) best = token;
  return best;
}

const PENALTY_LENGTH = 64;  // the last tokens of the text that the penalty looks at

export class Sampler {
  constructor({ temperature = 0, top_k = 0, top_p = 1, min_p = 0, repeat_penalty = 1, seed } = {}) {
    Object.assign(this, { temperature, top_k, top_p, min_p, repeat_penalty });
    this.random = seed === undefined ? Math.random : randomFrom(seed);
  }

  /** `text` are the tokens so far. The logits may be changed. */
  choose(logits, text) {
    if (logits.some(Number.isNaN)) throw new InputError("the model's logits are not numbers: the weights or the adapter's arithmetic are wrong");
    if (this.repeat_penalty !== 1) {
      for (const token of new Set(text.slice(-PENALTY_LENGTH))) logits[token] *= logits[token] <= 0 ? this.repeat_penalty : 1 / this.repeat_penalty;
    }
    if (this.temperature === 0) return argmax(logits);
    return this.#draw(this.#left(logits));
  }

  /** The tokens that may be drawn, the most probable first: {token, logit}. */
  #left(logits) {
    const highest = logits[argmax(logits)];
    // Tokens that are e^30 times less probable than the best are never drawn: the rest is little to sort.
    let left = [];
    logits.forEach((logit, token) => { if (logit > highest - 30) left.push({ token, logit }); });
    left.sort((a, b) => b.logit - a.logit || a.token - b.token);
    if (this.top_k > 0) left = left.slice(0, this.top_k);
    if (this.top_p < 1) {
      let sum = 0;
      const shares = probabilities(left);
      left = left.filter((_, place) => { const before = sum; sum += shares[place]; return before < this.top_p; });
    }
    if (this.min_p > 0) left = left.filter(({ logit }) => logit >= highest + Math.log(this.min_p));
    return left.map(({ token, logit }) => ({ token, logit: logit / this.temperature }));
  }

  #draw(left) {
    let rest = this.random();
    const shares = probabilities(left);
    return (left.find((_, place) => (rest -= shares[place]) < 0) ?? left.at(-1)).token;
  }
}

function probabilities(left) {
  const powers = left.map(({ logit }) => Math.exp(logit - left[0].logit)), sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
