// The numbers of a page of its own: answers that everycall's own code makes, as WebAssembly.

interface Code {
  memory: WebAssembly.Memory;
  input(length: number): number;
  output(): number;
  output_length(): number;
  load(): number;
  answer(): number;
}

export type Query = Record<string, string>;

export class Answers {
  private constructor(private readonly code: Code) {}

  /** Of the data of a page, unpacked. */
  static async of(code: Uint8Array, data: Uint8Array): Promise<Answers> {
    const { instance } = await WebAssembly.instantiate(code as BufferSource, {});
    const answers = new Answers(instance.exports as unknown as Code);
    answers.run('load', data);
    return answers;
  }

  ask(path: string, query: Query): unknown {
    return JSON.parse(this.run('answer', new TextEncoder().encode(`${path}?${new URLSearchParams(query)}`)));
  }

  private run(what: 'load' | 'answer', bytes: Uint8Array): string {
    const { code } = this;
    // The memory is another buffer whenever it has grown.
    const at = code.input(bytes.length);
    new Uint8Array(code.memory.buffer, at, bytes.length).set(bytes);
    const failed = code[what]() !== 0;
    const [from, length] = [code.output(), code.output_length()];
    const text = new TextDecoder().decode(new Uint8Array(code.memory.buffer, from, length));
    if (failed) throw new Error(text);
    return text;
  }
}
