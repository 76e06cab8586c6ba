"""SPICE's parser as a program: reads captions, one JSON string per line, and writes their tuples, one JSON line each.

Java runs inside this process, through JPype. CoreNLP (GPL-3.0) and SPICE (AGPL-3.0), which users fetch themselves, are
loaded in this process only, and it exchanges nothing but lines with its parent. The file is run as a script and imports
nothing from relabel.

The pipeline is that of SPICE (tokenize, ssplit, parse, lemma) without `ner`, which changes no tuple. Sentences are
parsed one by one to detect a sentence that does not fit into the heap. CoreNLP would continue with another parse, and
the tuples would depend on the size of the heap.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PROPERTIES = {"annotators": "tokenize,ssplit", "depparse.extradependencies": "MAXIMAL", "threads": "1"}
"""Properties that SPICE's Annotator sets. The annotators after `ssplit` are called one by one."""


class Parser:
    """SPICE's parser in the Java virtual machine of this process; `jvm` is libjvm."""

    def __init__(self, jvm: str, options: list[str], jars: list[str]) -> None:
        import jpype

        self.jpype = jpype
        jpype.startJVM(jvm, *options, classpath=jars, convertStrings=False)
        kind = jpype.JClass
        properties = kind("java.util.Properties")()
        for name, value in PROPERTIES.items():
            properties.setProperty(name, value)
        core = "edu.stanford.nlp"
        self.split = kind(f"{core}.pipeline.StanfordCoreNLP")(properties)
        self.trees = kind(f"{core}.pipeline.ParserAnnotator")("parse", properties)
        self.lemmas = kind(f"{core}.pipeline.MorphaAnnotator")(False)
        self.annotation = kind(f"{core}.pipeline.Annotation")
        annotations = f"{core}.ling.CoreAnnotations"
        self.sentences = kind(f"{annotations}$SentencesAnnotation").class_
        self.tokens = kind(f"{annotations}$TokensAnnotation").class_
        self.no_such_parse = kind(f"{core}.parser.common.NoSuchParseException")
        self.memory = kind("java.lang.OutOfMemoryError")
        self.wrapped = kind("java.lang.reflect.InvocationTargetException")
        self.any = kind("java.lang.Throwable")
        self.list = kind("java.util.LinkedList")
        self.spice = kind("edu.anu.spice.SpiceParser")(None, 1, True)
        self.grammar = _field(self.trees, "parser")
        lists, sentence = kind("java.util.List").class_, kind(f"{core}.util.CoreMap").class_
        self.finish = _method(self.trees, "finishSentence", sentence, lists)
        self.read = _method(self.spice, "parseAnnotation", self.annotation.class_)

    def answer(self, text: str) -> Any:
        """Parse a caption.

        Returns list of list of str, or dict: the tuples; `{"failed": reason}` if the caption cannot be parsed; or
        `{"memory": reason}`, after which the process must end.
        """
        try:
            return self.tuples(text)
        except MemoryError as error:
            return {"memory": _message(error)}
        except self.any as error:
            # Reflection wraps the exceptions of the called method.
            while isinstance(error, self.wrapped) and error.getCause() is not None:
                error = error.getCause()
            return {"memory" if isinstance(error, self.memory) else "failed": f"Java says {_message(error)}"}

    def tuples(self, text: str) -> list[list[str]]:
        """Parse a caption in the steps of SpiceParser.generateTuples."""
        valid = text.encode("utf-8", "replace").decode()  # JPype refuses half a surrogate pair
        annotation = self.annotation(self.jpype.JString(valid))
        self.split.annotate(annotation)
        for sentence in annotation.get(self.sentences):
            self.parse(annotation, sentence)
        self.lemmas.annotate(annotation)
        tuples = _field(self.read.invoke(self.spice, annotation), "tuples")
        return [[str(word) for word in each] for each in tuples]

    def parse(self, annotation: Any, sentence: Any) -> None:
        """Parse one sentence in the steps of ParserAnnotator.doOneSentence; raise MemoryError if it does not fit."""
        query = self.grammar.parserQuery()
        query.parse(sentence.get(self.tokens))
        if query.parseNoMemory():
            raise MemoryError(f"a sentence of {sentence.get(self.tokens).size()} tokens does not fit into the heap")
        trees = self.list()
        try:
            for scored in query.getKBestPCFGParses(1):
                tree = scored.object()
                tree.setScore(scored.score())
                trees.add(tree)
        except self.no_such_parse:
            trees.clear()
        if trees.isEmpty():
            self.trees.doOneFailedSentence(annotation, sentence)
        else:
            self.finish.invoke(self.trees, sentence, trees)


def main() -> int:
    """Answer captions until standard input ends or memory runs out; return the exit code."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n")
    os.dup2(2, 1)  # output of a library must not be taken for an answer

    def write(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        parser = Parser(**json.loads(sys.argv[1]))
    except Exception as error:
        write({"failed": _message(error)})
        return 1
    for line in sys.stdin:
        answer = parser.answer(json.loads(line))
        write(answer)
        if isinstance(answer, dict) and "memory" in answer:
            break  # the parent starts another process
    os._exit(0)  # a virtual machine that is short of memory may take long to shut down


def _method(owner: Any, name: str, *parameters: Any) -> Any:
    """Return a private method of a Java object."""
    kind = owner.getClass()
    method = kind.getDeclaredMethod(name, *parameters)
    method.setAccessible(True)
    return method


def _field(owner: Any, name: str) -> Any:
    """Return the value of a private field of a Java object."""
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


def _message(error: BaseException) -> str:
    """Return the first line of an error's text, or its type: an answer is one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


if __name__ == "__main__":
    sys.exit(main())
