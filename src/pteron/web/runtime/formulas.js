// The sizes, parameters and grids of a call, as formulas of what it chooses (see `frozen_numbers.py`).

import { InputError } from "./errors.js";

/** The values of names at one point, and the formulas that depend on them. */
export class Numbers {
  #quotients;

  constructor(quotients, values) {
    this.#quotients = quotients;
    this.values = values;
  }

  /** The number that a formula has here. */
  of(formula) {
    if (typeof formula === "number") return formula;
    return formula.reduce((sum, [times, ...factors]) => sum + factors.reduce((product, factor) => product * this.#factor(factor), times), 0);
  }

  #factor(factor) {
    if (factor >= 0) return this.values[factor];
    const [of, by] = this.#quotients[-1 - factor];
    return Math.floor(this.of(of) / this.of(by));
  }

  /** Whether conditions have the answers that they had where a case was found. */
  holds(conditions = []) {
    return conditions.every(([formula, below, answer]) => {
      const value = this.of(formula);
      return (below ? value < 0 : value === 0) === (answer === 1);
    });
  }
}

/** The numbers that the sizes of inputs follow from. Refuses sizes that the program does not have. */
export function chosenSizes({ sizes, inputs }, given) {
  const values = [], from = [];
  inputs.forEach((port, i) => port.sizes?.forEach((formula, dim) => {
    if (typeof formula === "number") return;
    const size = given[i].shape[dim], name = `${port.name}[${dim}]`, [[times, place], plus = [0]] = formula;
    const value = (size - plus[0]) / times, { low, high, step } = sizes[place];
    if (values[place] === undefined) {
      if (!Number.isInteger(value) || value < low || value > high || (value - low) % step) {
        throw new InputError(`${name} is ${size}: it must be ${text(formula, sizes)}, where ${sizes[place].name} is ${low}, ${low + step}, ..., ${high}`);
      }
      values[place] = value;
      from[place] = `${name} is ${size}`;
    } else if (values[place] !== value) {
      throw new InputError(`${name} must be ${times * values[place] + plus[0]} where ${from[place]}, not ${size}`);
    }
  }));
  return sizes.map(({ high }, place) => values[place] ?? high);
}

function text([[times, place], plus], sizes) {
  return `${times === 1 ? "" : `${times}*`}${sizes[place].name}${plus ? ` + ${plus[0]}` : ""}`;
}
