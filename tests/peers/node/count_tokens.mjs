// Counts the tokens of texts with js-tiktoken: a JSON list of texts on stdin, a JSON list of numbers on stdout.
import { text } from 'node:stream/consumers';
import { Tiktoken } from 'js-tiktoken/lite';
import o200k from 'js-tiktoken/ranks/o200k_base';

const encoder = new Tiktoken(o200k);
const texts = JSON.parse(await text(process.stdin));
// No text is taken for a control token, and none is refused for spelling one.
console.log(JSON.stringify(texts.map((one) => encoder.encode(one, [], []).length)));
