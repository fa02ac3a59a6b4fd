// A stream of tokens becomes a stream of text.

const UNFINISHED = "\ufffd";  // what a decoder writes for bytes that are not a complete character
const WINDOW = 16;  // tokens that are decoded again, as the text of a token depends on its neighbours

/** Turns tokens into text as they arrive. Text is never taken back, and never ends inside a character. */
export class Detokenizer {
  constructor(tokenizer) { Object.assign(this, { tokenizer, window: [], given: 0 }); }

  #decode() { return this.tokenizer.decode(this.window, { skip_special_tokens: true }); }

  push(token) {
    this.window.push(token);
    const text = this.#decode();
    if (text.endsWith(UNFINISHED) && this.window.length < 4 * WINDOW) return "";
    const piece = text.slice(this.given);
    this.given = text.length;
    if (this.window.length > 2 * WINDOW) {
      this.window = this.window.slice(-WINDOW);
      this.given = this.#decode().length;
    }
    return piece;
  }

  finish() { return this.#decode().slice(this.given); }
}
