// Turns a conversation into tokens, with the same rules as `pteron.llm`.

import { Template } from "./vendor/jinja.js";

const MARK = "\ufdd0";  // a Unicode noncharacter; it separates parts that must not become one token

export class Prompts {
  /** @param facts the contents of `language.json` */
  constructor(tokenizer, { chat_template, special_tokens, control_tokens, text_start }) {
    Object.assign(this, { tokenizer, special_tokens, text_start });
    this.template = chat_template ? new Template(chat_template) : null;
    const texts = control_tokens.map((text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
    // Matches the first character of a control token. Tokens may overlap, so it consumes no more.
    this.beginnings = texts.length ? new RegExp(`(?=${texts.join("|")}).`, "gsu") : null;
  }

  /** The tokens of a conversation. Without a template, the last message is the prompt. */
  encode(messages) {
    if (!this.template) return this.#text(messages.at(-1).content);
    const text = this.template.render({
      messages: messages.map((message) => this.#marked(message)),
      add_generation_prompt: true, tools: null, documents: null, ...this.special_tokens,
    });
    return text.split(MARK).flatMap((part) => this.tokenizer.encode(part, { add_special_tokens: false }).ids);
  }

  #text(text) {
    const { ids } = this.tokenizer.encode(text);
    return this.text_start === null || ids[0] === this.text_start ? ids : [this.text_start, ...ids];
  }

  /** A message whose control tokens are split in two, so that they are tokenized as text. */
  #marked(message) {
    if (!this.beginnings) return message;
    return Object.fromEntries(Object.entries(message).map(([name, text]) => [name, text.replace(this.beginnings, `$&${MARK}`)]));
  }
}
